"""Loss scaling: whether gradients overflowed cannot be known, so they are taken to be finite."""

from __future__ import annotations

from typing import Any

import torch

from peakline._virtual_cuda._patches import Patches


def install(patches: Patches) -> None:
    scaler: Any = torch.amp.GradScaler
    unscale = scaler._unscale_grads_

    def unscale_grads(self: Any, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = unscale(self, *args, **kwargs)
        for overflowed in found.values():
            overflowed.zero_()
        return found

    patches.set(scaler, "_unscale_grads_", unscale_grads)
