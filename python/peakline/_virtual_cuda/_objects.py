"""Python objects between ranks, where the other ranks are not there."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from peakline._patches import Patches

_RECEIVE = (
    "this rank waits for a Python object from another one, and a virtual run has no other; where a "
    "pipeline does this to learn shapes, give PipelineStage its input_args and output_args"
)


def install(patches: Patches) -> None:
    """Everybody says what this rank says. What only another rank knows is refused."""
    module: Any = dist.distributed_c10d
    replaced = {
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "broadcast_object_list": broadcast_object_list,
        "scatter_object_list": scatter_object_list,
        "send_object_list": send_object_list,
        "recv_object_list": recv_object_list,
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


def send_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """Nobody is there to get it."""


def recv_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> int:
    raise RuntimeError(_RECEIVE)
