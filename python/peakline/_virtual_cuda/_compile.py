"""torch.compile on a virtual GPU: there is nothing to compile for, so programs run eagerly."""

from __future__ import annotations

from typing import Any

import torch

from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._patches import Patches

_NOTE = "torch.compile was left out: compiled regions are estimated as they run eagerly"


def install(patches: Patches, notes: Notes) -> None:
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        notes.add(_NOTE)
        if model is None:
            return lambda wrapped: wrapped
        return model

    def compile_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        notes.add(_NOTE)

    patches.set(torch, "compile", compile)
    patches.set(torch.nn.Module, "compile", compile_module)
