"""What is known of a module's ops when some of them are to be recomputed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass
class _SACMetadata:
    """One op: its time, its result, and what it does to storages."""

    func: Any
    time_taken: float
    memory_used: float
    curr_idx: int
    output_ids: tuple[int, ...]
    inplace_info: tuple[int, ...]  # of in-place ops: itself, and the op that made the storage
    is_view_like: bool
    is_rand_op: bool


@dataclass
class _SACModMetadata:
    """The ops of one module, from `start_idx` on."""

    start_idx: int
    force_store_random: bool
    sac_metadata: list[_SACMetadata]


@dataclass
class SACStats:
    """A module's ops by index: milliseconds, bytes, and which must be treated alike."""

    func_names: list[str]
    runtimes: list[float]
    memory: list[int]
    view_like_ops: list[int]
    rand_ops: list[int]
    saved_autograd_ops: list[int]
    inplace_ops: list[tuple[int, int]]  # op, and the first op on the same storage
    force_store_random: bool


class MSPS(NamedTuple):
    """An op, or ops that go together: memory saved for each millisecond of recomputation."""

    func_names: set[str]
    op_idx: int
    memory: int
    runtime: float
    msps: float


@dataclass
class SACTradeOffStats:
    """Discarded share of the memory against recomputed share of the time, and lines along it."""

    n_segments: int
    slopes: list[float]
    intercepts: list[float]
    fit_breaks: list[float]
    tradeoff_curve: OrderedDict[float, float]
    sac_memory: int
    sac_runtime: float


@dataclass
class SACGreedyOrderMeta:
    """Which ops are always recomputed or stored, and the others in the order of their use."""

    recomputed_ops: set[int]
    stored_ops: set[int]
    inplace_op_groups: dict[int, set[int]]
    random_ops_group: dict[int, set[int]]
    msps_meta: list[MSPS]

    def together(self, op: int) -> set[int]:
        """The op, and those that go with it: a random op in place joins both its groups."""
        found = {op}
        groups = [*self.inplace_op_groups.values(), *self.random_ops_group.values()]
        while more := {i for group in groups if group & found for i in group} - found:
            found |= more
        return found

    def all_of(self, ops: set[int]) -> set[int]:
        return {i for op in ops for i in self.together(op)}
