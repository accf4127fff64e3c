"""Which ranks of a job differ in what they hold, as one of them sees it.

Ranks of a pipeline hold different stages. Within a stage, ranks along a mesh dimension hold shards,
and differ where a tensor's rows do not divide evenly. Everything else is the same program with the
same shapes. What one rank sees is true of its own stage only: others may hold other tensors.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

Axis = tuple[int, ...]  # the ranks of a group that this rank is in


def shard_size(rows: int, parts: int, place: int) -> int:
    """How many of `rows` the rank at `place` gets when they are dealt as torch.chunk does."""
    chunk = -(-rows // parts)
    return max(0, min(rows - place * chunk, chunk))


def shard_starts(rows: int, parts: int) -> set[int]:
    """The first place of each kind: those with a whole chunk, the one with the rest, and those with
    nothing."""
    if rows <= 0 or parts <= 1:
        return {0}
    whole, rest = divmod(rows, -(-rows // parts))
    starts = {0, whole, whole + bool(rest)}
    return {start for start in starts if start < parts}


@dataclass(frozen=True)
class _Dealt:
    """The rows of one dimension of a tensor, dealt along one axis after another."""

    rows: int
    axes: tuple[Axis, ...]

    def size_at(self, places: dict[Axis, int]) -> int:
        rows = self.rows
        for axis in self.axes:
            rows = shard_size(rows, len(axis), places[axis])
        return rows

    def starts(self) -> Iterator[tuple[Axis, set[int]]]:
        """Where along each axis sizes may change. What reaches an axis depends on those before."""
        reaching = {self.rows}
        for axis in self.axes:
            parts = len(axis)
            yield axis, set().union(*(shard_starts(rows, parts) for rows in reaching))
            reaching = {
                shard_size(rows, parts, place)
                for rows in reaching
                for place in shard_starts(rows, parts)
            }


class RankKinds:
    """Collects while a rank runs; then tells the other kinds of ranks that it knows of."""

    def __init__(self) -> None:
        self._stages: dict[Axis, None] = {}
        self._dealt: dict[_Dealt, None] = {}

    def add_stages(self, group: Any) -> None:
        """The ranks of a pipeline are all different."""
        self._stages[_ranks_of(group)] = None

    def add_sharded_tensors(self, tensors: Iterable[Any] | None = None) -> None:
        """Every DTensor that is alive, unless told which."""
        for tensor in _live_dtensors() if tensors is None else tensors:
            for dim, rows in enumerate(tensor.shape):
                axes = tuple(_axes_of(tensor, dim))
                if axes:
                    self._dealt[_Dealt(rows, axes)] = None

    def stages(self, rank: int) -> list[int]:
        """One rank of each stage: those at `rank`'s place along everything else."""
        return sorted({_moved(rank, ranks) for ranks in itertools.product(*self._stages)})

    def shards(self, rank: int) -> list[int]:
        """One rank for each set of shard sizes in `rank`'s stage."""
        starts: dict[Axis, set[int]] = {}
        for dealt in self._dealt:
            for axis, found in dealt.starts():
                if axis not in self._stages:
                    starts.setdefault(axis, set()).update(found)
        here = {axis: axis.index(rank) for dealt in self._dealt for axis in dealt.axes}
        kinds: dict[tuple[int, ...], int] = {self._sizes(here): rank}
        for places in itertools.product(*map(sorted, starts.values())):
            there = dict(zip(starts, places, strict=True))
            sizes = self._sizes(here | there)
            kinds.setdefault(sizes, _moved(rank, (axis[there[axis]] for axis in starts)))
        return sorted(kinds.values())

    def _sizes(self, places: dict[Axis, int]) -> tuple[int, ...]:
        return tuple(dealt.size_at(places) for dealt in self._dealt)


def _moved(rank: int, goals: Iterable[int]) -> int:
    """From `rank` to those ranks of the axes that it lies on, all at once: meshes are linear."""
    return rank + sum(goal - rank for goal in goals)


def _axes_of(tensor: Any, dim: int) -> Iterator[Axis]:
    """The axes that `dim` is dealt along, in order: from the left, then those of strided shards,
    which FSDP deals after tensor parallelism although its mesh dimension comes first."""
    mesh, strided = tensor.device_mesh, []
    if mesh.get_coordinate() is None:
        return  # a mesh of other ranks
    for mesh_dim, placement in enumerate(tensor.placements):
        if getattr(placement, "dim", None) != dim:
            continue
        if hasattr(placement, "split_factor"):
            strided.append(mesh_dim)
        else:
            yield _ranks_of(mesh.get_group(mesh_dim))
    for mesh_dim in reversed(strided):
        yield _ranks_of(mesh.get_group(mesh_dim))


def _ranks_of(group: Any) -> Axis:
    return tuple(dist.get_process_group_ranks(group or dist.group.WORLD))


def _live_dtensors() -> list[Any]:
    from torch.distributed.tensor import DTensor

    return [thing for thing in gc.get_objects() if type(thing) is DTensor or _is_parameter(thing)]


def _is_parameter(thing: Any) -> bool:
    from torch.distributed.tensor import DTensor

    return type(thing) is torch.nn.Parameter and isinstance(thing, DTensor)
