"""Extensions that a script builds from CUDA code while it runs (`torch.utils.cpp_extension.load`).

They are never built: that takes minutes and CUDA's compiler, and what comes out of it cannot run on
a virtual GPU. A known one has a stand-in; of another, a sentence says how to give it one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from peakline._imports import acting_on
from peakline._patches import Patches
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._options import Options
from peakline._virtual_cuda._stand_ins import _deepspeed

MODULE = "torch.utils.cpp_extension"
_REFUSAL = (
    "the extension {name} is CUDA code ({sources}), which a virtual GPU cannot run: with --fakes "
    "FILE.py, a class {name} of that file takes its place, whose functions give tensors of the "
    "right shapes"
)


def install(patches: Patches, notes: Notes, options: Options) -> None:
    def act(module: ModuleType) -> None:
        load, load_inline = module.load, module.load_inline
        patches.set(module, "load", _loading(load, notes, options))
        patches.set(module, "load_inline", _loading_inline(load_inline))

    patches.keep(acting_on({MODULE: act}))


def _loading(load: Any, notes: Notes, options: Options) -> Any:
    @functools.wraps(load)
    def load_unless_cuda(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        files = [sources] if isinstance(sources, str) else list(map(os.fspath, sources))
        stand_in = _deepspeed.extension(name, files) if options.stand_ins else None
        if stand_in is not None:
            notes.put("deepspeed", _deepspeed.NOTE)
            return stand_in
        _refuse(name, [os.path.basename(file) for file in files if file.endswith((".cu", ".cuh"))])
        return load(name, sources, *args, **kwargs)

    return load_unless_cuda


def _loading_inline(load: Any) -> Any:
    @functools.wraps(load)
    def load_unless_cuda(
        name: str, cpp_sources: Any, cuda_sources: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        _refuse(name, ["cuda_sources"] if cuda_sources else [])
        return load(name, cpp_sources, cuda_sources, *args, **kwargs)

    return load_unless_cuda


def _refuse(name: str, sources: Sequence[str]) -> None:
    if sources:
        raise RuntimeError(_REFUSAL.format(name=name, sources=", ".join(sources)))
