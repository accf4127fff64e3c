"""What a virtual GPU cannot do: one sentence each, and never a call into the real driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from peakline._patches import Patches

# Of every build with CUDA; those that are answered elsewhere replace these.
_FUNCTIONS = (
    "_cuda_allocationTraceback",
    "_cuda_attach_out_of_memory_observer",
    "_cuda_changeCurrentAllocator",
    "_cuda_cudaHostAllocator",
    "_cuda_customAllocator",
    "_cuda_getAllocator",
    "_cuda_getCurrentBlasHandle",
    "_cuda_getCurrentSolverHandle",
    "_cuda_unlock_mutex",
    "_cuda_lock_mutex",
)

# Types, and facts about the build: they reach no driver.
_HARMLESS = {"_cuda_CUDAAllocator", "_cuda_CUDAAllocator_AllocatorState", "_cuda_isInBadFork"}


def refusal(sentence: str) -> Callable[..., NoReturn]:
    """A function that only raises."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(sentence)

    return refuse


def install(patches: Patches) -> None:
    """Comes first: what is answered is put over it."""
    for name in sorted({*_FUNCTIONS, *_driver_functions()} - _HARMLESS):
        sentence = f"torch._C.{name} is not available on a virtual GPU"
        patches.set(torch._C, name, refusal(sentence))


def _driver_functions() -> list[str]:
    """Everything that a build with CUDA offers under such a name."""
    return [name for name in vars(torch._C) if name.startswith("_cuda_")]
