"""Memory that Triton itself takes for a launch.

A kernel that makes tensor descriptors (`tl.make_tensor_descriptor`) writes them to global memory,
on GPUs that copy by them (compute capability 9.0 and up). How many bytes a program needs is known
when the kernel is compiled, so such a kernel is compiled, and no other. The program sets who
allocates them (`triton.set_allocator`); without, Triton's own error comes.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

_MAKES = "make_tensor_descriptor"
_DESCRIPTOR_BYTES = 128
_FIRST_WITH_DESCRIPTORS = (9, 0)


class Scratch(NamedTuple):
    bytes_per_program: int
    alignment: int

    def allocated(self, grid: tuple[int, ...]) -> Any:
        """What holds the memory of one launch, for as long as it runs."""
        size = self.bytes_per_program * math.prod(grid)
        if size == 0:
            return None
        allocation = importlib.import_module("triton.runtime._allocation")
        stream = torch.cuda.current_stream().cuda_stream
        return allocation._allocator.get()(size, self.alignment, stream)


NO_SCRATCH = Scratch(0, 1)


def scratch_of(kernel: Any, compiled: Callable[[], Any]) -> Scratch:
    """`compiled` gives the built kernel, with what Triton found out about it."""
    made = descriptors_made(kernel)
    if made == 0:
        return NO_SCRATCH
    try:
        facts = compiled().metadata
        size = facts.global_scratch_size * getattr(facts, "num_ctas", 1)
        return Scratch(size, facts.global_scratch_align)
    except Exception:  # a machine that cannot build kernels: what each descriptor takes
        return Scratch(made * _DESCRIPTOR_BYTES, _DESCRIPTOR_BYTES)


def descriptors_made(kernel: Any) -> int:
    if torch.cuda.get_device_capability() < _FIRST_WITH_DESCRIPTORS:
        return 0
    return sum(source.count(_MAKES) for source in _sources(kernel, set()))


def _sources(function: Any, seen: set[int]) -> Iterator[str]:
    """Of a kernel, and of the kernels that it calls."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield function.src
    for name in function.fn.__code__.co_names:
        called = function.__globals__.get(name)
        if hasattr(called, "src") and hasattr(called, "fn"):
            yield from _sources(called, seen)
