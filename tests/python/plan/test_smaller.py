"""What would fit where nothing does, over programs that are only numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakline._fit.variables import spread
from peakline._plan.arguments import Orders, usual_levers
from peakline._plan.document import Plan
from peakline._plan.search import Outcome
from peakline._plan.smaller import first_that_fits, orders_for, sizes_of, values_below
from peakline._plan.tried import Tried
from peakline._script_sizes import Size

FUSED = Plan(levers={"optimizer.implementation": "fused"})
HOST = Plan(levers={"optimizer.state": "host"})  # needs least, and takes longer
BATCH = Size("batch", 64)


class Numbers:
    """`fixed` bytes, less with levers, and 10 for each of a batch."""

    def __init__(self, fixed: int, unable: Sequence[int] = ()) -> None:
        self._fixed, self._unable = fixed, unable
        self.asked: list[Plan] = []

    def tried(self, plan: Plan) -> Tried | None:
        self.asked.append(plan)
        batch = plan.arguments.get("batch", 64)
        less = {"fused": 50, "host": 150}
        saved = sum(less[str(value)] for value in plan.levers.values())
        ms = 20.0 if plan.levers == HOST.levers else 10.0
        if batch in self._unable:
            return None
        return Tried(plan, {"peak_reserved": self._fixed - saved + 10 * batch, "step_ms": ms})

    def ask(self, plans: Sequence[Plan]) -> list[Tried | None]:
        return [self.tried(plan) for plan in plans]

    def outcome(self) -> Outcome:
        plans = [self.tried(plan) for plan in (Plan(), FUSED, HOST)]
        tried = [one for one in plans if one is not None]
        return Outcome(tried[0], None, tried)


def batches(
    numbers: Numbers, budget: int, holds: Callable[[Plan], bool] = lambda plan: True
) -> list[int]:
    found = first_that_fits(
        [BATCH], numbers.outcome(), lambda size: numbers.ask, budget, lambda size: holds
    )
    return [one.plan.arguments["batch"] for one in found.found]


@given(st.integers(0, 1200))
def test_it_is_the_largest_value_of_each_plan_that_fits(budget: int) -> None:
    values = spread(values_below(BATCH))
    host, fused = ([v for v in values if 400 - less + 10 * v <= budget] for less in (150, 50))
    assert batches(Numbers(400), budget) == [max(own) for own in (host, fused) if own]


def test_few_values_are_estimated() -> None:
    numbers = Numbers(400)
    batches(numbers, 500)
    assert len(numbers.asked) <= 3 + 2 * 5


def test_a_batch_that_the_script_cannot_have_is_passed_over() -> None:
    assert batches(Numbers(400, unable=[1]), 280) == [3]
    assert batches(Numbers(400, unable=[1, 2, 3]), 5000) == []


def test_what_does_not_hold_under_the_limit_is_not_told() -> None:
    assert batches(Numbers(400), 410, lambda plan: plan.arguments["batch"] <= 3) == [3, 3]


def test_where_not_even_the_smallest_fits_it_is_told_what_that_needs() -> None:
    numbers = Numbers(400)
    found = first_that_fits([BATCH], numbers.outcome(), lambda size: numbers.ask, 100)
    assert found.found == []
    assert found.least is not None
    assert (found.least.needs, found.least.plan.arguments) == (260, {"batch": 1})


def test_the_next_argument_is_tried_where_the_first_is_not_enough() -> None:
    numbers = Numbers(400)
    sizes = [Size("rows", 64), BATCH]  # rows change nothing
    found = first_that_fits(sizes, numbers.outcome(), lambda size: numbers.ask, 700)
    assert found.size == BATCH


def test_a_length_is_not_made_shorter_than_makes_sense() -> None:
    assert values_below(Size("seq-len", 4096)).values[0] == 64
    assert values_below(Size("batch", 4096)).values[0] == 1


@pytest.mark.parametrize(
    ("words", "size", "command"),
    [
        ([], Size("batch", 8), "--vary batch=1..7"),
        (["--batch=8"], Size("batch", 8), "--vary batch=1..7 -- --batch=@batch"),
        ([], Size("bs", 8, ["--bs=@bs"]), "--vary bs=1..7 -- --bs=@bs"),
    ],
)
def test_the_command_hands_values_over_as_the_script_takes_them(
    words: list[str], size: Size, command: str
) -> None:
    orders = Orders(own=["train.py"], words=words, memory=2**30, levers=usual_levers())
    typed = orders_for(size, orders).search_command()
    assert typed == f"peakline plan train.py --memory 1GiB {command}"


def test_what_is_varied_already_is_not_proposed() -> None:
    outcome = Numbers(400).outcome()
    outcome.sizes = [BATCH, Size("seq-len", 8)]
    orders = Orders(vary=[values_below(BATCH)])
    assert [one.name for one in sizes_of(outcome, orders)] == ["seq-len"]
