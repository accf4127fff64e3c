"""Futures of collectives that move nothing: done at once, with the tensors that hold the result.

torch's fake works have empty futures, and communication hooks read the result from them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from peakline import _C
from peakline._patches import Patches

# Methods of ProcessGroup whose first argument is where the result comes to lie.
_METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "_allgather_base",
    "all_gather_single",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "_reduce_scatter_base",
    "scatter",
    "send",
)


class DoneWork(dist.Work):
    """What a collective gives: it has been done."""

    def __init__(self, results: list[Any]) -> None:
        super().__init__()
        self._results = results  # tensors, or lists of them, one for each rank

    def wait(self, timeout: Any = None) -> bool:
        _C.vgpu.join_collectives()  # the clock hears by when they have to be done
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def synchronize(self) -> None:
        pass

    def block_current_stream(self) -> None:
        pass

    def source_rank(self) -> int:
        return 0

    def result(self) -> list[Any]:
        return self._results

    def get_future(self) -> torch.futures.Future[Any]:
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(self._results)
        return done


_GATHERS = ("_allgather_base", "all_gather_single")


def install(patches: Patches, ours: Callable[[], bool]) -> None:
    """`ours`: whether the groups that are there belong to a virtual run."""
    for name in _METHODS:
        method = getattr(dist.ProcessGroup, name, None)
        if method is not None:
            patches.set(dist.ProcessGroup, name, _with_result(method, ours))


def _flat(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """NCCL takes an output of any shape; the fake group cuts it along its first dimension."""
    if len(args) < 2:  # by name
        return args
    output, given, *others = args
    if not (output.is_contiguous() and given.is_contiguous()):
        return args
    return output.view(-1), given.view(-1), *others


def _with_result(method: Any, ours: Callable[[], bool]) -> Any:
    @functools.wraps(method)
    def collective(self: Any, *args: Any, **kwargs: Any) -> Any:
        flat = _flat(args) if ours() and method.__name__ in _GATHERS else args
        work = method(self, *flat, **kwargs)
        if work is None or not ours():
            return work
        results = args[0] if args else next(iter(kwargs.values()), [])
        return DoneWork([results] if isinstance(results, torch.Tensor) else list(results))

    return collective
