"""Plans between two rungs of the ladder, whose numbers may be anything."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from peakline._plan import between
from peakline._plan.document import Plan
from peakline._plan.tried import Tried

_SHARES = 16  # that two rounds of quarters can reach between two rungs
_NUMBERS = st.lists(st.integers(1, 30), min_size=_SHARES + 1, max_size=_SHARES + 1)


def _tried(share: float, needs: Sequence[int], times: Sequence[int]) -> Tried:
    place = round(share * _SHARES)
    plan = Plan(arguments={"share": place})
    return Tried(plan, {"peak_reserved": needs[place], "step_ms": times[place]})


def _refined(needs: Sequence[int], times: Sequence[int], budget: int) -> list[Tried]:
    def at(share: float) -> Plan:
        return Plan(arguments={"share": round(share * _SHARES)})

    def ask(plans: Sequence[Plan]) -> list[Tried | None]:
        return [_tried(plan.arguments["share"] / _SHARES, needs, times) for plan in plans]

    low, high = _tried(0.0, needs, times), _tried(1.0, needs, times)
    rungs = [(0.0, low), (1.0, high)] if high.needs > low.needs else [(0.0, low)]
    return between.refine(low, rungs, at, ask, lambda one: (one.step_ms,), budget)


@settings(max_examples=300, deadline=None)
@given(_NUMBERS, _NUMBERS)
def test_a_smaller_budget_never_gives_a_higher_peak_between_rungs(
    needs: list[int], times: list[int]
) -> None:
    before = needs[0]
    for budget in range(needs[0], 31):
        found = _refined(needs, times, budget)
        last = found[-1].needs if found else needs[0]
        assert before <= last <= budget
        steps = [times[0], *(one.step_ms for one in found)]
        assert steps == sorted(set(steps), reverse=True)
        before = last


def test_the_largest_that_fits_is_found_where_more_memory_is_faster() -> None:
    needs = [10 + place for place in range(_SHARES + 1)]
    times = [100 - place for place in range(_SHARES + 1)]
    assert [_refined(needs, times, budget)[-1].needs for budget in (11, 17, 25)] == [11, 17, 25]
    assert _refined(needs, times, 10) == []
