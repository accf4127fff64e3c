"""Random generators of the virtual devices: seeds and states as the real ones have them."""

from __future__ import annotations

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine


def install(patches: Patches, engine: Engine) -> None:
    generators = tuple(engine.default_generator(device) for device in range(engine.device_count()))
    # torch.manual_seed() before the block holds for it, as it would for CUDA's own generators.
    seed = torch.initial_seed()
    for generator in generators:
        generator.manual_seed(seed)
    patches.set(torch.cuda, "default_generators", generators)
