"""The search for a plan, over programs that are only numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from peakline._fit.variables import Variable
from peakline._plan.arguments import usual_levers
from peakline._plan.choices import Layers
from peakline._plan.document import Plan
from peakline._plan.facts import Facts, OptimizerFacts
from peakline._plan.op_profile import ModuleProfile, Op
from peakline._plan.probe import Found, Kind
from peakline._plan.search import Search
from peakline._plan.tried import Tried

MIB = 2**20


def op(name: str, call: int, ms: float, mib: float, random: bool = False) -> Op:
    return Op(name, call, ms, int(mib * MIB), random, fixed=mib == 0)


LAYER = ModuleProfile(
    ops=[
        op("aten.mm.default", 0, 2.0, 8),
        op("aten.gelu.default", 0, 0.2, 8),
        op("aten.view.default", 0, 0.0, 0),
        op("aten.native_dropout.default", 0, 0.3, 10, random=True),
        op("aten.mm.default", 1, 3.0, 4),
        op("aten.native_dropout.default", 1, 0.1, 5, random=True),
        op("aten.mm.default", 2, 1.0, 4),
    ],
    saved=36 * MIB,
    recomputed=6,
    input_bytes=2 * MIB,
)


def found(layers: int = 8) -> Found:
    facts = Facts([OptimizerFacts("AdamW", ["fused", "foreach", "single"], "foreach")])
    members = [f"layers.{i}" for i in range(layers)]
    return Found("Model", [Kind(LAYER, members)], facts, 50.0)


class Numbers:
    """Answers with numbers that follow from a plan, and with `noise` by which they do not."""

    def __init__(self, noise: Sequence[float]) -> None:
        self._noise = noise

    def probe_and_ask(self, base: Plan) -> tuple[Found, Tried]:
        return found(), self._answer(base)

    def ask(self, plans: Sequence[Plan]) -> list[Tried | None]:
        return [self._answer(plan) for plan in plans]

    def _answer(self, plan: Plan) -> Tried:
        text = plan.dumps()
        place = sum(map(ord, text)) % len(self._noise)
        changed = sum(len(entry.modules) for entry in plan.activations)
        memory = (1000 - 20 * changed - 50 * len(plan.levers)) * self._noise[place]
        answer: dict[str, Any] = {
            "peak_reserved": int(memory * MIB),
            "peak_allocated": 1,
            "gpu": "g",
        }
        answer["step_ms"] = (100 + 3 * changed + 2 * len(plan.levers)) * self._noise[place - 1]
        return Tried(plan, answer)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.5, 1.5), min_size=3, max_size=9),
    st.lists(st.integers(300, 1600), min_size=2, max_size=6),
)
def test_a_smaller_budget_never_gives_a_higher_peak_however_estimates_jump(
    noise: list[float], budgets: list[int]
) -> None:
    before = 0
    for budget in sorted(budgets):
        outcome = Search(Numbers(noise), [], usual_levers()).run(budget * MIB)
        if outcome.chosen is None:
            assert before == 0
            assert outcome.floor.reserved > budget * MIB
            continue
        assert before <= outcome.chosen.reserved <= budget * MIB
        assert outcome.pareto(budget * MIB)[0] is outcome.chosen
        before = outcome.chosen.reserved


def test_each_value_of_an_argument_has_its_own_ladder() -> None:
    search = Search(Numbers([1.0]), [Variable("batch", range(1, 9))], usual_levers())
    outcome = search.run(2000 * MIB)
    assert {one.plan.arguments["batch"] for one in outcome.tried} == {1, 2, 3, 4, 6, 8}


def kept(entry: Any) -> set[tuple[str, int]]:
    return {(name, call) for name, calls in entry.keep.items() for call in calls}


def test_less_memory_takes_more_recomputation() -> None:
    layers = Layers(found().kinds)
    rungs = [layers.plan(share / 8) for share in range(8)]
    numbers = []
    for rung in rungs:
        assert rung is not None
        numbers.append(sum((8 - len(kept(entry))) * len(entry.modules) for entry in rung))
    assert numbers == sorted(numbers, reverse=True)
    assert rungs[0] is not None
    assert [entry.policy for entry in rungs[0]] == ["recompute"]
    assert rungs[0][0].modules == tuple(f"layers.{i}" for i in range(8))


def test_random_ops_go_together_and_views_and_what_comes_last_are_not_kept() -> None:
    for share in range(8):
        for entry in Layers(found().kinds).plan(share / 8) or ():
            random = {call for name, call in kept(entry) if "dropout" in name}
            assert random in (set(), {0, 1})
            assert ("aten.view.default", 0) not in kept(entry)
            assert ("aten.mm.default", 2) not in kept(entry)  # a recomputation ends before it


def test_the_op_that_saves_most_time_for_its_bytes_is_kept_first() -> None:
    rungs = [Layers(found(1).kinds).plan(share / 40) for share in range(40)]
    first = next(entry for rung in rungs for entry in rung or () if entry.keep)
    assert kept(first) == {("aten.mm.default", 1)}  # 3 ms for 4 MiB


def test_the_first_layers_recompute_and_the_last_keep() -> None:
    entries = Layers(found().kinds).plan(0.5) or ()
    order = [int(name.split(".")[1]) for entry in entries for name in entry.modules]
    assert order == list(range(len(order)))


def test_offloading_takes_no_more_than_can_be_copied_meanwhile() -> None:
    fast = Layers(found().kinds, 50.0).plan(0.0) or ()
    assert fast[0].offload
    slow = Layers(found().kinds, 1e-6).plan(0.0) or ()
    assert not slow[0].offload
