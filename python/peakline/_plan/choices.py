"""Which layers keep, recompute or offload what: integer programs, solved by HiGHS.

Equal layers are solved once: first for one of them, which ops to keep within several budgets; then
over all layers, how many of each kind take which of these answers.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field, replace

from peakline import _C
from peakline._dropin.milp import Program
from peakline._plan.document import Activations
from peakline._plan.op_profile import ModuleProfile, Op
from peakline._plan.probe import Kind

_LEVELS = 8  # budgets for the ops of a layer
_PART_LEVELS = 4  # and for those of a module in it
_WORTH_IT = 0.02  # of what a layer leaves for backward: modules with less are left alone
_GAP = 1e-4
_TIE = 1e-3
_SECONDS = 20.0
_HIDDEN = 0.7  # of a layer's time, in which copies to the host may hide


@dataclass(frozen=True)
class Level:
    """One way to treat a layer."""

    policy: str  # "" leaves it as it is
    memory: float  # bytes that stay on the GPU for backward
    ms: float  # recomputation
    keep: dict[str, tuple[int, ...]] = field(default_factory=dict)
    offload: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parts: tuple[tuple[str, Level], ...] = ()  # of "parts": modules of the layer, each by its own
    whole_ops: int = 0  # that run where all is recomputed
    chosen_ops: int = 0  # that run where some are kept

    def beats(self, other: Level) -> bool:
        """It is no worse in anything."""
        effort = self.whole_ops + 2 * self.chosen_ops, other.whole_ops + 2 * other.chosen_ops
        return self.memory <= other.memory and self.ms <= other.ms and effort[0] <= effort[1]


@dataclass(frozen=True)
class Pace:
    """How long GPU and host are busy in a step that recomputes nothing, and what each op of a layer
    that does costs the host; in milliseconds. A step takes as long as the busier of the two."""

    gpu: float
    host: float
    whole_op: float  # in a layer that is recomputed as a whole
    chosen_op: float  # in one of which some ops are kept

    def host_ms(self, level: Level) -> float:
        return level.whole_ops * self.whole_op + level.chosen_ops * self.chosen_op


def levels(profile: ModuleProfile, pcie_gbps: float = 0.0) -> list[Level]:
    """Ways to treat a layer, the least memory first; with `pcie_gbps` results may be offloaded."""
    plain = Level("", float(profile.saved), 0.0)
    room = pcie_gbps * 1e6 * profile.ms * _HIDDEN  # bytes that can be copied meanwhile
    found = [_solve(profile, 0.0, room)]
    for step in range(1, _LEVELS):
        found.append(_solve(profile, profile.saved * step / _LEVELS, room))
    if not pcie_gbps:
        found += _by_parts(profile)
    useful = [level for level in _useful([plain, *found]) if level.memory < plain.memory]
    return [*useful, plain]


def _useful(found: list[Level]) -> list[Level]:
    """Those that no other beats, the least memory first."""
    kept: list[Level] = []
    for level in sorted(found, key=lambda one: (one.memory, one.ms, one.chosen_ops)):
        if not any(other.beats(level) for other in kept):
            kept.append(level)
    return kept


def _by_parts(profile: ModuleProfile) -> list[Level]:
    """A layer of which some modules checkpoint, and the others do not."""
    found = [Level("parts", float(profile.saved), 0.0)]
    for name, part in profile.parts.items():
        if part.saved < profile.saved * _WORTH_IT:
            continue
        budgets = [part.saved * step / _PART_LEVELS for step in range(_PART_LEVELS)]
        options = _useful([_solve(part, budget, 0.0) for budget in budgets])
        both = [_with_part(one, name, part, option) for one in found for option in options]
        found = _useful([*found, *both])
    return [one for one in found if one.parts]


def _with_part(level: Level, name: str, part: ModuleProfile, option: Level) -> Level:
    return replace(
        level,
        memory=level.memory - part.saved + option.memory,
        ms=level.ms + option.ms,
        parts=(*level.parts, (name, option)),
        whole_ops=level.whole_ops + option.whole_ops,
        chosen_ops=level.chosen_ops + option.chosen_ops,
    )


def _solve(profile: ModuleProfile, budget: float, room: float) -> Level:
    """The ops to keep within `budget` bytes so that recomputation takes least."""
    ops = profile.ops[: profile.recomputed]
    program = Program()
    keep: dict[int, int] = {}
    send: dict[int, int] = {}
    random = [i for i, op in enumerate(ops) if op.random]
    together = program.column(0, 0 if any(ops[i].fixed for i in random) else 1, whole=True)
    for i, op in enumerate(ops):
        if op.fixed:
            continue
        if op.random:  # all of them or none: they share the generator's state
            keep[i] = together
            continue
        if op.ms <= 0 or op.bytes <= 0:
            continue
        keep[i] = program.column(0, 1, -op.ms, whole=True)
        if room > 0 and op.bytes >= 2**20:
            send[i] = program.column(0, 1, -op.ms * 0.98, whole=True)
            program.row({keep[i]: 1, send[i]: 1}, high=1)
    terms: dict[int, float] = {}
    for i, column in keep.items():
        terms[column] = terms.get(column, 0.0) + ops[i].bytes / 2**20
    if terms:
        program.row(terms, high=budget / 2**20)
    if send:
        program.row({column: ops[i].bytes / 2**20 for i, column in send.items()}, high=room / 2**20)
    values = (program.solve(0.0, _SECONDS) if terms else []) or [0.0] * 10_000
    kept = [i for i, column in keep.items() if round(values[column]) == 1]
    sent = [i for i, column in send.items() if round(values[column]) == 1]
    _check(ops, kept, budget)
    free = {*kept, *sent}
    ms = sum(op.ms for i, op in enumerate(ops) if i not in free)
    memory = float(profile.input_bytes + sum(ops[i].bytes for i in kept))
    count = len(profile.ops)
    calls = _calls(ops, kept), _calls(ops, sent)
    if free:
        return Level("selective", memory, ms, *calls, chosen_ops=count)
    return Level("recompute", memory, ms, *calls, whole_ops=count)


def _check(ops: list[Op], kept: list[int], budget: float) -> None:
    """C++ adds up the solver's answer again, and refuses one that does not hold."""
    save = [1 if i in set(kept) else 0 for i in range(len(ops))]
    fixed = [0 if op.fixed else -1 for op in ops]
    random = [i for i, op in enumerate(ops) if op.random and not op.fixed]
    equal = list(itertools.pairwise(random))
    sizes = [float(op.bytes) for op in ops]
    _C.cost.check_choices(sizes, [op.ms for op in ops], fixed, equal, max(budget, 1.0), save)


def _calls(ops: list[Op], chosen: list[int]) -> dict[str, tuple[int, ...]]:
    made: dict[str, list[int]] = {}
    for i in chosen:
        made.setdefault(ops[i].name, []).append(ops[i].call)
    return {name: tuple(sorted(calls)) for name, calls in sorted(made.items())}


class Layers:
    """All layers of a model, and the plans of least recomputation for shares of their memory."""

    def __init__(self, kinds: list[Kind], pcie_gbps: float = 0.0) -> None:
        self._kinds = kinds
        self._levels = [levels(kind.profile, pcie_gbps) for kind in kinds]
        self._pace: Pace | None = None

    def paced(self, pace: Pace) -> Layers:
        """The same, with plans of the shortest step instead of the least recomputation."""
        made = copy.copy(self)
        made._pace = pace
        return made

    def whole(self) -> Layers:
        """A layer is recomputed as a whole or not at all, which the host issues faster."""
        made = copy.copy(self)
        made._levels = [
            [one for one in found if not one.keep and not one.parts] for found in self._levels
        ]
        return made

    def every(self, policy: str) -> tuple[Activations, ...]:
        """All layers by one policy, where it has one: by a middle one of those that keep some."""
        made = []
        for kind, found in self._pairs():
            own = [level for level in found if level.policy == policy]
            if own:
                level = own[len(own) // 2]
                members = tuple(kind.members)
                made.append(Activations(members, level.policy, level.keep, level.offload))
        return tuple(made)

    def ops_of(self, entries: tuple[Activations, ...]) -> int:
        """How many ops the forward of these layers has."""
        named = {name for entry in entries for name in entry.modules}
        return sum(
            len(kind.profile.ops) * sum(name in named for name in kind.members)
            for kind in self._kinds
        )

    @property
    def can_save(self) -> bool:
        return any(len(found) > 1 for found in self._levels)

    @property
    def offloads(self) -> bool:
        return any(level.offload for found in self._levels for level in found)

    def plan(self, share: float) -> tuple[Activations, ...] | None:
        """`share`: 0 is the least memory that there is, 1 all of it. None: the solver failed."""
        least = sum(found[0].memory * len(kind.members) for kind, found in self._pairs())
        most = sum(found[-1].memory * len(kind.members) for kind, found in self._pairs())
        budget = least + share * (most - least)
        program = Program()
        weight = 1.0 if self._pace is None else _TIE  # of plans as fast the least recomputation
        columns = [
            [program.column(0, len(kind.members), level.ms * weight, whole=True) for level in found]
            for kind, found in self._pairs()
        ]
        for (kind, _), own in zip(self._pairs(), columns, strict=True):
            program.row(dict.fromkeys(own, 1.0), len(kind.members), len(kind.members))
        memory = {
            column: level.memory / 2**20
            for (_, found), own in zip(self._pairs(), columns, strict=True)
            for column, level in zip(own, found, strict=True)
        }
        program.row(memory, high=budget / 2**20 * (1 + 1e-9))
        if self._pace is not None:
            self._bound_by_the_busier(program, columns, self._pace)
        values = program.solve(_GAP, _SECONDS)
        if values is None:
            return None
        made: dict[tuple[str, str], tuple[Level, list[str]]] = {}
        for (kind, found), own in zip(self._pairs(), columns, strict=True):
            self._assign(kind, found, [round(values[column]) for column in own], made)
        return tuple(
            Activations(tuple(members), level.policy, level.keep, level.offload)
            for level, members in made.values()
        )

    def _bound_by_the_busier(self, program: Program, columns: list[list[int]], pace: Pace) -> None:
        longer = program.column(cost=1.0)  # than without recomputation
        gpu, host = {longer: -1.0}, {longer: -1.0}
        for found, own in zip(self._levels, columns, strict=True):
            for level, column in zip(found, own, strict=True):
                gpu[column] = level.ms
                host[column] = pace.host_ms(level)
        step = max(pace.gpu, pace.host)
        program.row(gpu, high=step - pace.gpu)
        program.row(host, high=step - pace.host)

    def _pairs(self) -> list[tuple[Kind, list[Level]]]:
        return list(zip(self._kinds, self._levels, strict=True))

    @staticmethod
    def _assign(
        kind: Kind,
        found: list[Level],
        counts: list[int],
        made: dict[tuple[str, str], tuple[Level, list[str]]],
    ) -> None:
        """The first layers take the least memory: what the last ones keep is freed first."""
        members = iter(kind.members)
        for level, count in zip(found, counts, strict=True):
            names = list(itertools.islice(members, count))
            for part, one in level.parts or (("", level),):
                if one.policy and names:
                    key = (one.policy, repr((part, one.keep, one.offload)))
                    inside = [f"{name}.{part}" if part else name for name in names]
                    made.setdefault(key, (one, []))[1].extend(inside)
