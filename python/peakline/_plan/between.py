"""Looks between the plan that is chosen and the next rung of the ladder, which is too large.

Rungs are far apart beside what a layer can keep, so some of the budget may lie idle. What is tried
here depends on the budget; that a smaller budget never gives a higher peak holds all the same. A
plan counts only if it is faster than the one before it and needs no less, which does not depend on
the budget. Searches under two budgets go the same way until a plan lies between the two; from there
on the larger budget has a plan that needs more than the smaller one allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from peakline._plan.document import Plan
from peakline._plan.tried import Tried

_ROUNDS = 2
_PARTS = 4  # into which a round cuts what is left

Rank = Callable[[Tried], tuple[Any, ...]]


def refine(
    chosen: Tried,
    rungs: Sequence[tuple[float, Tried]],
    at: Callable[[float], Plan | None],
    ask: Callable[[Sequence[Plan]], list[Tried | None]],
    rank: Rank,
    budget: int,
) -> list[Tried]:
    """Ever faster plans that fit; `rungs` are shares of memory, ascending, and their plans, and
    `at` makes the plan of a share."""
    low, high = _interval(chosen, rungs)
    found: list[Tried] = []
    best = chosen
    for _ in range(_ROUNDS if low < high else 0):
        step = (high - low) / _PARTS
        shares = [low + part * step for part in range(1, _PARTS)]
        plans = [(share, plan) for share in shares if (plan := at(share)) is not None]
        tried = ask([plan for _, plan in plans])
        for (share, _), one in zip(plans, tried, strict=True):
            if one is None or one.needs < best.needs or rank(one) >= rank(best):
                continue
            if one.needs > budget:
                high = share
                break
            low, best = share, one
            found.append(one)
    return found


def _interval(chosen: Tried, rungs: Sequence[tuple[float, Tried]]) -> tuple[float, float]:
    """Shares of the last rung that needs no more than the plan, and of the next one."""
    below = [place for place, (_, one) in enumerate(rungs) if one.needs <= chosen.needs]
    last = max(below, default=-1)
    if last + 1 >= len(rungs):
        return 1.0, 1.0
    return (rungs[last][0] if below else 0.0), rungs[last + 1][0]
