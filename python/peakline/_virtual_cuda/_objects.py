"""Python objects between ranks, where the other ranks are not there."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from peakline._patches import Patches
from peakline._virtual_cuda._job import Job

_RECEIVE = (
    "this rank waits for a Python object from another one, and a virtual run has no other; where a "
    "pipeline does this to learn shapes, give PipelineStage its input_args and output_args"
)


def install(patches: Patches, job: Job) -> None:
    """Everybody says what this rank says. What only another rank knows is asked of `job`, and
    refused where that cannot find out."""
    module: Any = dist.distributed_c10d
    exchange = _Exchange(job)
    replaced = {
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "broadcast_object_list": broadcast_object_list,
        "scatter_object_list": scatter_object_list,
        "send_object_list": exchange.send_object_list,
        "recv_object_list": exchange.recv_object_list,
    }
    for name, function in replaced.items():
        if hasattr(module, name):
            patches.set(module, name, function)
            patches.set(dist, name, function)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    object_list[:] = [obj] * len(object_list)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **kwargs: Any
) -> None:
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """The list stays: this rank's own objects are the best guess at the other's."""


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    **kwargs: Any,
) -> None:
    if scatter_object_input_list:
        scatter_object_output_list[0] = scatter_object_input_list[dist.get_rank(group)]


class _Exchange:
    """From one rank to another."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def send_object_list(
        self,
        object_list: list[Any],
        dst: int | None = None,
        group: Any = None,
        device: Any = None,
        group_dst: int | None = None,
        **kwargs: Any,
    ) -> None:
        self._job.send(_global_rank(dst, group, group_dst), object_list)

    def recv_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
        **kwargs: Any,
    ) -> int:
        source = _global_rank(src, group, group_src)
        if self._job.receive is None:
            raise RuntimeError(_RECEIVE)
        object_list[:] = self._job.receive(source)
        return source


def _global_rank(rank: int | None, group: Any, place: int | None) -> int:
    """`place`: in `group`."""
    if rank is not None:
        return rank
    return dist.get_process_group_ranks(group or dist.group.WORLD)[place or 0]
