"""The answer of a search as one object: what `--json` writes."""

from __future__ import annotations

from typing import Any

from peakline._estimate import arguments as estimate_arguments
from peakline._fit.tries import usual_memory
from peakline._plan import smaller
from peakline._plan.arguments import Orders
from peakline._plan.document import Plan
from peakline._plan.search import Outcome
from peakline._plan.tried import Tried
from peakline._plan.tries import Tries


def budget_of(orders: Orders) -> int:
    """What a plan may reserve."""
    memory = orders.memory
    if memory is None:
        first = Plan(arguments={one.name: one.values[0] for one in orders.vary})
        memory = usual_memory(estimate_arguments.parse(orders.estimate_words(first)).gpu)
    return int(memory * (1 - orders.margin))


def row_of(one: Tried, orders: Orders | None, budget: int) -> dict[str, Any]:
    return {
        "changes": one.plan.changes(),
        "command": orders.command(one.plan, orders.output or "plan.json") if orders else "",
        "peak_allocated": one.allocated,
        "peak_reserved": one.reserved,
        "memory_needed": one.needs,
        "host_peak": one.answer.get("host_peak", 0),
        "step_ms": one.step_ms,
        "throughput": one.throughput,
        "throughput_unit": one.unit,
        "fits": one.needs <= budget,
        "plan": one.plan.to_json(),
    }


def plans_of(
    outcome: Outcome, orders: Orders | None, budget: int, dropped: list[tuple[Plan, str]]
) -> dict[str, Any]:
    """Best plans first, then those that others beat or that do not fit."""
    best = outcome.pareto(budget)
    fastest = sorted(outcome.tried, key=lambda one: -one.throughput)
    others = [one for one in fastest if one not in best]
    chosen = outcome.chosen
    return {
        "memory_budget": budget,
        "fits": chosen is not None,
        "plans": [row_of(one, orders, budget) for one in [*best, *others]],
        "chosen": None if chosen is None else best.index(chosen),
        "floor": outcome.floor.needs,
        "short_by": max(0, outcome.floor.needs - budget),
        "cannot": [{"changes": plan.changes(), "why": why} for plan, why in dropped],
    }


def as_json(
    whole: dict[str, Any],
    outcome: Outcome,
    orders: Orders,
    budget: int,
    tries: Tries,
    less: smaller.Smaller | None,
) -> dict[str, Any]:
    """The object of `estimate` for the chosen plan (for the smallest when none fits), and plans."""
    found = plans_of(outcome, orders, budget, tries.dropped)
    found["smaller"] = None
    if less is not None:
        with_less = smaller.orders_for(less.size, orders)
        found["smaller"] = smaller.as_json(less, lambda one: row_of(one, with_less, budget))
    return {**whole, **found, "remembered": tries.recalled}
