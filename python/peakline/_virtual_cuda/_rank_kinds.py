"""Which ranks of a job differ in what they hold, seen from its rank 0.

Ranks along a mesh dimension hold shards, and differ where a tensor does not divide evenly; ranks of
a pipeline hold different stages. Everything else is the same program with the same shapes. A rank's
number is the sum of its places along the dimensions, since rank 0 is at the beginning of each.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

Axis = tuple[int, ...]  # the ranks of a group that rank 0 is in


def shard_starts(size: int, parts: int) -> set[int]:
    """The first rank of each kind when `size` rows are dealt to `parts` ranks as torch.chunk does:
    those with a whole chunk, the one with the rest, and those with nothing."""
    if size <= 0 or parts <= 1:
        return {0}
    chunk = -(-size // parts)
    whole, rest = divmod(size, chunk)
    starts = {0}
    if rest and whole < parts:
        starts.add(whole)
    if whole + bool(rest) < parts:
        starts.add(whole + bool(rest))
    return starts


class RankKinds:
    """Collects while rank 0 runs. `representatives()` has one rank of each kind."""

    def __init__(self) -> None:
        self._starts: dict[Axis, set[int]] = {}

    def add_stages(self, group: Any) -> None:
        """The ranks of a pipeline are all different."""
        axis = _ranks_of(group)
        self._starts[axis] = set(range(len(axis)))

    def add_sharded_tensors(self, tensors: Iterable[Any] | None = None) -> None:
        """Every DTensor that is alive, unless told which."""
        for tensor in _live_dtensors() if tensors is None else tensors:
            self._add_dtensor(tensor)

    def _add_dtensor(self, tensor: Any) -> None:
        mesh = tensor.device_mesh
        for dim, placement in enumerate(tensor.placements):
            if placement.is_shard():
                axis = _ranks_of(mesh.get_group(dim))
                size = tensor.shape[placement.dim]
                self._starts.setdefault(axis, set()).update(shard_starts(size, len(axis)))

    def representatives(self, world_size: int) -> list[int]:
        axes = [[axis[start] for start in sorted(self._starts[axis])] for axis in self._axes()]
        ranks = {sum(places) for places in itertools.product(*axes)} | {0}
        return sorted(rank for rank in ranks if rank < world_size)

    def _axes(self) -> Sequence[Axis]:
        return sorted(axis for axis in self._starts if axis and axis[0] == 0)


def _ranks_of(group: Any) -> Axis:
    return tuple(dist.get_process_group_ranks(group or dist.group.WORLD))


def _live_dtensors() -> list[Any]:
    from torch.distributed.tensor import DTensor

    return [thing for thing in gc.get_objects() if type(thing) is DTensor or _is_parameter(thing)]


def _is_parameter(thing: Any) -> bool:
    from torch.distributed.tensor import DTensor

    return type(thing) is torch.nn.Parameter and isinstance(thing, DTensor)
