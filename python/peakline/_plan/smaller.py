"""Where nothing fits: the largest batch, or length, of the script that would."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from peakline._fit.variables import Variable, spread
from peakline._plan.arguments import Orders
from peakline._plan.document import Plan
from peakline._plan.search import Outcome
from peakline._plan.tried import Tried
from peakline._script_sizes import LENGTH, Size, in_order, of_words

Ask = Callable[[Sequence[Plan]], list[Tried | None]]
Holds = Callable[[Plan], bool]  # seen once more, under the real limit
_SHORTEST = 64  # a sequence is not made shorter than this share of it
_UNABLE = 3  # smallest values that a script may be unable to take, such as a batch of one


@dataclass
class Smaller:
    """One argument, made smaller."""

    size: Size
    found: list[Tried] = field(default_factory=list)  # that fit, the largest value first
    least: Tried | None = None  # with the smallest value: when not even that fits
    command: str = ""  # that searches among all values


def values_below(size: Size) -> Variable:
    lowest = max(1, size.value // _SHORTEST) if size.kind == LENGTH else 1
    return Variable(size.name, range(lowest, size.value))


def sizes_of(outcome: Outcome, orders: Orders) -> list[Size]:
    """Those that are not varied already, the most promising first."""
    varied = {one.name for one in orders.vary}
    given = [own for own, _ in of_words(orders.words)]
    return [one for one in in_order([*given, *outcome.sizes]) if one.name not in varied]


def orders_for(size: Size, orders: Orders) -> Orders:
    """The same search, with less of one argument."""
    marked = [words for own, words in of_words(orders.words) if own.name == size.name]
    words = marked[0] if marked else [*orders.words, *size.words]
    return replace(orders, words=words, vary=[*orders.vary, values_below(size)])


def first_that_fits(
    sizes: Sequence[Size],
    outcome: Outcome,
    ask_for: Callable[[Size], Ask],
    budget: int,
    holds_for: Callable[[Size], Holds] | None = None,
) -> Smaller:
    """One after another, until less of one is enough; else the first."""
    made = []
    for size in sizes:
        holds = holds_for(size) if holds_for else lambda plan: True
        made.append(_with_less_of(size, outcome, ask_for(size), holds, budget))
        if made[-1].found:
            return made[-1]
    return made[0]


def _with_less_of(size: Size, outcome: Outcome, ask: Ask, holds: Holds, budget: int) -> Smaller:
    """The largest value with the plan that needs least, and with the one that costs no time."""
    values = spread(values_below(size))
    made = Smaller(size)
    for plan in _plans(outcome):
        tries = _Tries(plan, size.name, ask)
        found = tries.largest(values, budget, holds)
        if found is not None:
            made.found.append(found)
    if not made.found:
        tries = _Tries(outcome.floor.plan, size.name, ask)
        made.least = next((tries.at(value) for value in values if tries.at(value)), None)
    made.found.sort(key=lambda one: -one.plan.arguments[size.name])
    return made


def _plans(outcome: Outcome) -> list[Plan]:
    base, floor = outcome.base, outcome.floor
    free = [
        one
        for one in outcome.tried
        if not one.plan.activations
        and one.step_ms <= base.step_ms
        and one.plan.arguments == base.plan.arguments
    ]
    lightest = min(free, key=lambda one: one.needs)
    return [floor.plan] if floor.plan == lightest.plan else [floor.plan, lightest.plan]


class _Tries:
    """One plan at several values of an argument."""

    def __init__(self, plan: Plan, name: str, ask: Ask) -> None:
        self._plan, self._name, self._ask = plan, name, ask
        self._known: dict[int, Tried | None] = {}

    def at(self, value: int) -> Tried | None:
        if value not in self._known:
            (self._known[value],) = self._ask([self._with(value)])
        return self._known[value]

    def largest(self, values: Sequence[int], budget: int, holds: Holds) -> Tried | None:
        """By halving, since more of it needs more; then proven."""
        place = self._last_below(values, budget)
        while place >= 0:
            tried = self.at(values[place])
            if tried is not None and tried.needs <= budget and holds(self._with(values[place])):
                return tried
            place -= 1
        return None

    def _last_below(self, values: Sequence[int], budget: int) -> int:
        first = next((place for place, value in enumerate(values[:_UNABLE]) if self.at(value)), -1)
        if first < 0 or self._needs(values[first]) > budget:
            return -1
        low, high = first, len(values)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._needs(values[middle]) <= budget
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _needs(self, value: int) -> float:
        tried = self.at(value)
        return math.inf if tried is None else tried.needs

    def _with(self, value: int) -> Plan:
        return replace(self._plan, arguments={**self._plan.arguments, self._name: value})


def as_json(made: Smaller, row: Callable[[Tried], dict[str, Any]]) -> dict[str, Any]:
    return {
        "argument": made.size.name,
        "now": made.size.value,
        "plans": [row(one) for one in made.found],
        "least": None if made.least is None else row(made.least),
        "command": made.command,
    }
