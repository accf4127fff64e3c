"""`torch.compile(fullgraph=True)` around stand-ins.

The real packages' kernels are ops, which a compiled graph calls. A stand-in is Python that Dynamo
does not trace, so a graph ends before it and another begins behind it. What is kept for backward
is the same; a program that insists on one graph must not fail for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._notes import Notes

_NOTE = (
    "torch.compile was asked for full graphs: they break at stand-ins, where the real packages' "
    "kernels would be part of them"
)


def install(patches: Patches, notes: Notes, in_use: Callable[[], bool]) -> None:
    original = torch.compile

    def compile(model: Any = None, *, fullgraph: bool = False, **kwargs: Any) -> Any:
        if fullgraph and in_use():
            notes.put("full graphs", _NOTE)
            fullgraph = False
        return original(model, fullgraph=fullgraph, **kwargs)

    patches.set(torch, "compile", compile)
