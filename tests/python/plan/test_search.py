"""The search for a plan, over programs that are only numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from peakline._fit.variables import Variable
from peakline._plan import search
from peakline._plan.arguments import usual_levers
from peakline._plan.choices import Layers
from peakline._plan.document import Plan
from peakline._plan.facts import Facts, OptimizerFacts
from peakline._plan.op_profile import ModuleProfile, Op
from peakline._plan.probe import Found, Kind
from peakline._plan.search import Outcome, Search
from peakline._plan.tried import Tried
from peakline._plan_script import _proof

MIB = 2**20
PAGE = 20 * MIB


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

    def whole(self, plan: Plan, memory: int) -> dict[str, Any]:
        return {"gpu_fits": self._answer(plan).needs <= memory}

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
            "allocator_conf": plan.levers.get("allocator", ""),
        }
        answer["step_ms"] = (100 + 3 * changed + 2 * len(plan.levers)) * self._noise[place - 1]
        return Tried(plan, answer)


@functools.cache
def _ladder_once(rungs: int, pcie_gbps: float, whole: bool) -> list[Plan]:
    return search._ladder(found(), rungs, pcie_gbps, whole)


def _known_ladder(_: Found, rungs: int, pcie_gbps: float, whole: bool = False) -> list[Plan]:
    """The solver's answers are the same in every search: only estimates differ."""
    return _ladder_once(rungs, pcie_gbps, whole)


def _searched(noise: Sequence[float], budget: int) -> Outcome:
    with mock.patch.object(search, "_ladder", _known_ladder):
        return Search(Numbers(noise), [], usual_levers()).run(budget)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.5, 1.5) | st.floats(0.98, 1.02), min_size=3, max_size=9),
    st.lists(st.integers(0, 100), min_size=4, max_size=12),
)
def test_a_smaller_budget_never_gives_a_higher_peak_however_estimates_jump(
    noise: list[float], places: list[int]
) -> None:
    for rungs in ((12, 0.0, False), (2, 0.0, False), (2, 50.0, False), (6, 0.0, True)):
        _ladder_once(*rungs)
    # Budgets at which the choice changes: where one plan more fits, and one byte below.
    edges = sorted({one.needs - less for one in _searched(noise, 0).tried for less in (0, 1)})
    before, reserved = 0, 0
    for budget in sorted({edges[place % len(edges)] for place in places}):
        outcome = _searched(noise, budget)
        tries: Any = Numbers(noise)
        proof = _proof(outcome, tries, budget, budget)
        chosen = outcome.chosen
        if chosen is None:
            assert before == 0
            assert outcome.floor.needs > budget
            continue
        assert proof["gpu_fits"]
        assert before <= chosen.needs <= budget
        assert reserved <= chosen.reserved + PAGE  # which segments that grow need beside
        assert outcome.pareto(budget)[0] is chosen
        before, reserved = chosen.needs, chosen.reserved


def test_a_plan_that_does_not_hold_under_the_limit_gives_way_to_the_next_that_does() -> None:
    budget = 900 * MIB
    tries: Any = Numbers([1.0])
    outcome = Search(tries, [], usual_levers()).run(budget)
    first = outcome.chosen
    assert first is not None
    tries.whole = lambda plan, memory: {"gpu_fits": plan != first.plan}
    assert _proof(outcome, tries, budget, budget)["gpu_fits"]
    assert outcome.chosen is not None
    assert outcome.chosen.plan != first.plan
    assert outcome.chosen.needs <= budget
    assert first.plan not in [one.plan for one in outcome.pareto(budget)]


def test_where_no_plan_holds_under_the_limit_none_is_chosen_and_the_floor_is_above_it() -> None:
    tries: Any = Numbers([1.0])
    tries.whole = lambda plan, memory: {"gpu_fits": False}
    outcome = Search(tries, [], ["allocator"]).run(2000 * MIB)
    _proof(outcome, tries, 2000 * MIB, 2000 * MIB)
    assert outcome.chosen is None
    assert outcome.floor.needs > 2000 * MIB
    assert outcome.base.needs > 2000 * MIB


def test_a_setting_that_needs_more_than_it_saves_is_not_taken_for_free() -> None:
    class Small(Numbers):
        """20 MiB that segments need to grow are more than they save here."""

        def _answer(self, plan: Plan) -> Tried:
            made = super()._answer(plan).answer
            made["peak_reserved"] = (100 - 8 * ("allocator" in plan.levers)) * MIB
            made["step_ms"] = 100.0
            return Tried(plan, made)

    outcome = Search(Small([1.0]), [], ["allocator", "activations"]).run(2000 * MIB)
    both = [one.plan for one in outcome.tried if "allocator" in one.plan.levers]
    assert [plan.activations for plan in both] == [()]  # tried alone, and with nothing else


def test_arguments_that_change_nothing_are_found() -> None:
    class Deaf(Numbers):
        def _answer(self, plan: Plan) -> Tried:
            heard = {name: value for name, value in plan.arguments.items() if name != "rows"}
            made = super()._answer(replace(plan, arguments=heard))
            batch = heard.get("batch", 1)
            return Tried(plan, {**made.answer, "step_ms": 10.0 * batch, "samples_per_s": 100.0})

    vary = [Variable("batch", [1, 2]), Variable("rows", [1, 2])]
    outcome = Search(Deaf([1.0]), vary, ["optimizer.implementation"]).run(2000 * MIB)
    assert outcome.without_effect() == ["rows"]
    assert Search(Deaf([1.0]), [], ["activations"]).run(2000 * MIB).without_effect() == []


def test_each_value_of_an_argument_has_its_own_ladder() -> None:
    vary = [Variable("batch", range(1, 9))]
    outcome = Search(Numbers([1.0]), vary, usual_levers()).run(2000 * MIB)
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
