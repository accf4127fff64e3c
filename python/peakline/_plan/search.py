"""Finds the fastest plan that fits.

What is estimated does not depend on the budget: the script as it is, every lever alone, and the
rungs of ladders of checkpointing, from an integer program each. The fastest of those that fit is
taken. So a smaller budget never gives a higher peak: either the same plan still fits and is still
the fastest, or whatever is taken lies under the smaller budget and the first plan does not. Only
then is looked for a faster one that uses what the budget leaves idle (`between.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from peakline._fit.variables import Variable, spread
from peakline._plan import between
from peakline._plan.arguments import ACTIVATIONS
from peakline._plan.choices import Layers, Pace
from peakline._plan.document import Plan
from peakline._plan.levers import BY_KEY, LEVERS
from peakline._plan.probe import Found, Named
from peakline._plan.tried import Tried
from peakline._script_sizes import Size
from peakline._script_variables import Together

_RUNGS = 16  # of the ladder, where only checkpointing varies
_FEW_RUNGS = 4  # where the script's arguments vary, too
_FREE = 1.005  # a lever that takes no more than this share of the time costs nothing
_SAVES = 0.999  # and one that saves must leave no more than this
_ALIKE = 0.002  # throughputs that differ by less are the same


class Asking(Protocol):
    def probe_and_ask(self, base: Plan) -> tuple[Found, Tried]: ...
    def ask(self, plans: Sequence[Plan]) -> list[Tried | None]: ...


@dataclass
class Outcome:
    base: Tried
    chosen: Tried | None
    tried: list[Tried] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)  # that the script has: batch, length
    idle: list[str] = field(default_factory=list)  # levers that the script has no use for
    called: Named | None = None  # the model, by the script
    together: Together | None = None

    @property
    def floor(self) -> Tried:
        """The least that any needs; of those that need as little the fastest."""
        return min(self.tried, key=lambda one: (one.needs, _rank(one)))

    def reject(self, one: Tried, budget: int) -> None:
        """It did not hold when it was seen again: the next best is chosen."""
        known = replace(one, at_least=budget + 1)
        self.tried[self.tried.index(one)] = known
        if self.base is one:
            self.base = known
        fitting = [other for other in self.tried if other.needs <= budget]
        self.chosen = min(fitting, key=_rank, default=None)

    def without_effect(self) -> list[str]:
        """Arguments that were varied and made no difference to anything."""
        found = []
        for name in self.base.plan.arguments:
            groups: dict[str, set[tuple[float, ...]]] = {}
            values: dict[str, set[int]] = {}
            for one in self.tried:
                others = {key: own for key, own in one.plan.arguments.items() if key != name}
                key = replace(one.plan, arguments=others).dumps()
                seen = (one.reserved, one.allocated, one.step_ms, one.throughput)
                groups.setdefault(key, set()).add(seen)
                values.setdefault(key, set()).add(one.plan.arguments[name])
            varied = [key for key in groups if len(values[key]) > 1]
            if varied and all(len(groups[key]) == 1 for key in varied):
                found.append(name)
        return found

    def pareto(self, budget: int) -> list[Tried]:
        """Those that fit and that no other beats in both memory and speed; the fastest first."""
        fitting = [one for one in self.tried if one.needs <= budget]
        fitting.sort(key=_rank)
        kept: list[Tried] = []
        for one in fitting:
            if not kept or one.needs < kept[-1].needs:
                kept.append(one)
        return kept


class Search:
    def __init__(self, tries: Asking, vary: Sequence[Variable], levers: Sequence[str]) -> None:
        self._tries = tries
        self._vary = list(vary)
        self._levers = set(levers)
        self._tried: dict[str, Tried] = {}
        # What makes the rungs of the ladder of each value of the script's arguments, and the rungs.
        self._layers: Layers | None = None
        self._rungs: list[tuple[float, Plan]] = []
        self._model = ""

    def run(self, budget: int) -> Outcome:
        points = list(_points(self._vary))
        base = Plan(arguments=points[0])
        found, first = self._tries.probe_and_ask(base)
        self._add([first])
        free, costly = self._levers_alone(base, first, found)
        self._ask(self._ladders(points, free, costly, found))
        tried = list(self._tried.values())
        fitting = [one for one in tried if one.needs <= budget]
        best = min(fitting, key=_rank, default=None)
        if best is not None:
            finer = self._between_rungs(best, free, budget)
            tried, best = [*tried, *finer], [best, *finer][-1]
        idle = [key for key in BY_KEY if key in self._levers and not self._uses(key, found)]
        sizes = found.facts.sizes
        return Outcome(first, best, tried, sizes, idle, found.called, found.together)

    @staticmethod
    def _uses(key: str, found: Found) -> bool:
        return bool(BY_KEY[key].tries(found.facts))

    def _between_rungs(self, chosen: Tried, free: dict[str, Any], budget: int) -> list[Tried]:
        layers = self._layers
        if layers is None:
            return []

        def same_point(plan: Plan) -> Plan:
            return replace(plan, levers=free, arguments=chosen.plan.arguments)

        def at(share: float) -> Plan | None:
            plan = _plan_at(self._model, layers, share)
            return None if plan is None else same_point(plan)

        known = [(share, self._tried.get(same_point(rung).dumps())) for share, rung in self._rungs]
        rungs = [(share, one) for share, one in known if one is not None]
        return between.refine(chosen, rungs, at, self._tries.ask, _rank, budget)

    def _ask(self, plans: Sequence[Plan]) -> None:
        self._add([one for one in self._tries.ask(plans) if one is not None])

    def _add(self, tried: Sequence[Tried]) -> None:
        for one in tried:
            self._tried.setdefault(one.plan.dumps(), one)

    def _levers_alone(
        self, base: Plan, first: Tried, found: Found
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Levers that save and cost nothing, together; and those that save at a price."""
        alone = [
            (lever.key, value)
            for lever in LEVERS
            if lever.key in self._levers
            for value in lever.tries(found.facts)
        ]
        answers = self._tries.ask([replace(base, levers={key: value}) for key, value in alone])
        free: dict[str, Any] = {}
        best: dict[str, Tried] = {}
        costly: list[dict[str, Any]] = []
        for (key, value), one in zip(alone, answers, strict=True):
            if one is None:
                continue
            self._add([one])
            if not _is_free(one, first):
                if one.needs <= first.needs * _SAVES:
                    costly.append({key: value})
            elif key not in best or _rank(one) < _rank(best[key]):
                best[key], free[key] = one, value
        return free, costly

    def _pace(
        self, point: dict[str, int], free: dict[str, Any], model: str, layers: Layers
    ) -> Pace | None:
        """What recomputation costs the host, from an estimate of each way to do it."""
        ways = [layers.every("recompute"), layers.every("selective")]
        if not all(ways):
            return None
        plans = [Plan("", (), free, point), *(Plan(model, way, free, point) for way in ways)]
        answers = self._tries.ask(plans)
        self._add([one for one in answers if one is not None])
        if any(one is None or not one.host_ms for one in answers):
            return None
        plain, *others = (one for one in answers if one is not None)
        whole, chosen = (
            max(0.0, other.host_ms - plain.host_ms) / layers.ops_of(way)
            for other, way in zip(others, ways, strict=True)
        )
        return Pace(plain.gpu_busy_ms, plain.host_ms, whole, chosen)

    def _ladders(
        self,
        points: list[dict[str, int]],
        free: dict[str, Any],
        costly: list[dict[str, Any]],
        found: Found,
    ) -> list[Plan]:
        main, short, more = [(1.0, Plan())], [Plan()], list[Plan]()
        layers = Layers(found.kinds) if ACTIVATIONS in self._levers else None
        if layers is not None and layers.can_save:
            if len(points) == 1:
                pace = self._pace(points[0], free, found.model, layers)
                layers = layers if pace is None else layers.paced(pace)
                main = _ladder(found.model, layers, _RUNGS)
            else:  # how busy the host is differs from value to value
                main = _ladder(found.model, layers, _FEW_RUNGS)
                more = _plans(_ladder(found.model, layers.whole(), _FEW_RUNGS // 2))
            self._model, self._layers, self._rungs = found.model, layers, main
            short = _plans(_ladder(found.model, layers, 2))
            sent = Layers(found.kinds, found.pcie_gbps)
            more += _plans(_ladder(found.model, sent, 2))[:2] if sent.offloads else []
        plans = []
        for point in points:
            rungs = [*_plans(main), *more]
            plans += [replace(rung, levers=free, arguments=point) for rung in rungs]
            for levers in _with_each(free, costly):
                apart = any(not BY_KEY[key].beside_activations for key in levers)
                rungs = [Plan()] if apart else short
                plans += [replace(rung, levers=levers, arguments=point) for rung in rungs]
        return plans


def _points(vary: Sequence[Variable]) -> Iterator[dict[str, int]]:
    """Values of the script's own arguments."""
    names = [variable.name for variable in vary]
    for values in itertools.product(*map(spread, vary)):
        yield dict(zip(names, values, strict=True))


def _ladder(model: str, layers: Layers, rungs: int) -> list[tuple[float, Plan]]:
    """Plans of checkpointing alone and their shares of the memory, from the least to all."""
    made = [(rung / rungs, _plan_at(model, layers, rung / rungs)) for rung in range(rungs)]
    return [(share, plan) for share, plan in made if plan is not None] + [(1.0, Plan())]


def _plan_at(model: str, layers: Layers, share: float) -> Plan | None:
    entries = layers.plan(share)
    return Plan(model, entries) if entries else None


def _plans(ladder: list[tuple[float, Plan]]) -> list[Plan]:
    return [plan for _, plan in ladder]


def _is_free(one: Tried, base: Tried) -> bool:
    """It saves or is faster, and costs nothing worth mentioning of the other."""
    if one.step_ms > base.step_ms * _FREE or one.needs * _SAVES > base.needs:
        return False
    return one.needs <= base.needs * _SAVES or one.step_ms < base.step_ms / _FREE


def _with_each(free: dict[str, Any], costly: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in costly:
        both = {**free, **one}
        if both.get("optimizer.in_backward") and both.get("optimizer.state") == "host":
            del both["optimizer.in_backward" if "optimizer.state" in one else "optimizer.state"]
        yield both


def _rank(one: Tried) -> tuple[Any, ...]:
    """Faster first; of those as fast the one that changes less, then the one that needs less."""
    speed = round(math.log(max(one.throughput, 1e-9)) / _ALIKE)
    plan = one.plan
    touched = sum(len(entry.modules) for entry in plan.activations)
    return -speed, len(plan.levers) + bool(plan.activations), one.needs, touched, plan.dumps()
