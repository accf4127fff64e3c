"""The search for a plan, over programs that are only numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakline._fit.variables import Variable
from peakline._plan import search
from peakline._plan.arguments import usual_levers
from peakline._plan.choices import Layers, Level, Pace, levels
from peakline._plan.document import Plan, loads
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
def _plan_once(share: float, offloads: bool) -> Plan | None:
    layers = Layers(found().kinds, found().pcie_gbps if offloads else 0.0)
    return _PLAN_AT("Model", layers, share)


_PLAN_AT = search._plan_at


def _known_plan(model: str, layers: Layers, share: float) -> Plan | None:
    """The solver's answers are the same in every search: only estimates differ."""
    return _plan_once(share, layers.offloads)


def _searched(noise: Sequence[float], budget: int) -> Outcome:
    with mock.patch.object(search, "_plan_at", _known_plan):
        return Search(Numbers(noise), [], usual_levers()).run(budget)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.5, 1.5) | st.floats(0.98, 1.02), min_size=3, max_size=9),
    st.lists(st.integers(0, 100), min_size=4, max_size=12),
)
def test_a_smaller_budget_never_gives_a_higher_peak_however_estimates_jump(
    noise: list[float], places: list[int]
) -> None:
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


def test_the_floor_is_the_fastest_of_those_that_need_least() -> None:
    slow, fast = (
        Tried(Plan(levers={"optimizer.implementation": kind}), {"peak_reserved": 5, "step_ms": ms})
        for kind, ms in (("single", 9.0), ("fused", 8.0))
    )
    more = Tried(Plan(), {"peak_reserved": 6, "step_ms": 1.0})
    assert Outcome(more, None, [more, slow, fast]).floor is fast


def test_where_the_number_of_ranks_varies_speeds_are_those_of_a_gpu() -> None:
    answer = {"peak_reserved": 5, "step_ms": 10.0, "samples_per_s": 800.0}
    assert Tried(Plan(), answer).unit == "samples/s"
    assert Tried(Plan(arguments={"world-size": 4}), answer).unit == "samples/s per GPU"


def test_a_faster_optimizer_is_taken_though_it_needs_a_little_more() -> None:
    class Faster(Numbers):
        def _answer(self, plan: Plan) -> Tried:
            made = super()._answer(plan).answer
            fused = plan.levers.get("optimizer.implementation") == "fused"
            changed = sum(len(entry.modules) for entry in plan.activations)
            made["peak_reserved"] = (14_000 - 100 * changed + 2 * fused) * MIB
            made["step_ms"] = 100.0 + changed - 6 * fused
            return Tried(plan, made)

    levers = ["optimizer.implementation", "activations"]
    outcome = Search(Faster([1.0]), [], levers).run(13_500 * MIB)
    assert outcome.chosen is not None
    assert outcome.chosen.plan.activations
    assert outcome.chosen.plan.levers == {"optimizer.implementation": "fused"}


def test_what_a_budget_leaves_idle_between_two_rungs_is_used() -> None:
    class Smooth(Numbers):
        """Each op that is kept needs 7 MiB and saves 1 ms."""

        def _answer(self, plan: Plan) -> Tried:
            made = super()._answer(plan).answer
            recomputed = sum(
                len(entry.modules) * (len(LAYER.ops) - len(kept(entry)))
                for entry in plan.activations
            )
            made["peak_reserved"] = (10_000 - 7 * recomputed) * MIB
            made["step_ms"] = 100.0 + recomputed
            return Tried(plan, made)

    def idle(budget: int) -> int:
        outcome = Search(Smooth([1.0]), [], ["activations"]).run(budget)
        assert outcome.chosen is not None
        assert outcome.pareto(budget)[0] is outcome.chosen
        return budget - outcome.chosen.needs

    with mock.patch.object(search.between, "_ROUNDS", 0):
        coarse = [idle(budget * MIB) for budget in range(9_700, 10_000, 10)]
    fine = [idle(budget * MIB) for budget in range(9_700, 10_000, 10)]
    assert all(a <= b for a, b in zip(fine, coarse, strict=True))
    assert sum(fine) < sum(coarse) * 0.7


def test_levers_that_the_script_has_no_use_for_are_named() -> None:
    levers = ["fsdp.wrap", "optimizer.implementation", "compile.activation_memory_budget"]
    outcome = Search(Numbers([1.0]), [], levers).run(2000 * MIB)
    assert outcome.idle == ["compile.activation_memory_budget", "fsdp.wrap"]


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


def host_of(entries: Any, pace: Pace) -> float:
    count = dict.fromkeys(("recompute", "selective"), 0)
    for entry in entries:
        count[entry.policy] += len(entry.modules)
    calls = count["recompute"] * pace.whole_op + count["selective"] * pace.chosen_op
    return len(LAYER.ops) * calls


def test_where_the_host_is_the_busier_layers_are_recomputed_as_a_whole() -> None:
    layers = Layers(found().kinds)
    busy = layers.paced(Pace(gpu=50.0, host=100.0, whole_op=0.1, chosen_op=1.0))
    idle = layers.paced(Pace(gpu=100.0, host=5.0, whole_op=0.1, chosen_op=1.0))
    for share in range(1, 8):
        assert {entry.policy for entry in busy.plan(share / 8) or ()} <= {"recompute"}
        assert idle.plan(share / 8) == layers.plan(share / 8)


def test_ops_are_chosen_as_long_as_the_host_has_time_for_it() -> None:
    pace = Pace(gpu=100.0, host=80.0, whole_op=0.1, chosen_op=1.0)
    both = Layers(found().kinds).paced(pace).plan(0.3) or ()
    assert {entry.policy for entry in both} == {"recompute", "selective"}
    all_chosen = Layers(found().kinds).plan(0.3) or ()
    assert pace.host + host_of(all_chosen, pace) > 125
    assert pace.host + host_of(both, pace) < 120


def test_what_recomputation_costs_the_host_is_taken_from_estimates() -> None:
    class Busy(Numbers):
        """20 ms for each chosen layer, 1 ms for each that is recomputed as a whole."""

        def _answer(self, plan: Plan) -> Tried:
            made = super()._answer(plan).answer
            cost = {"recompute": 1.0, "selective": 20.0}
            host = sum(cost[one.policy] * len(one.modules) for one in plan.activations)
            made |= {"host_ms": 100 + host, "gpu_busy_ms": 10.0, "step_ms": 100 + host}
            return Tried(plan, made)

    outcome = Search(Busy([1.0]), [], ["activations"]).run(2000 * MIB)
    here = [one for one in outcome.tried if not any(e.offload for e in one.plan.activations)]
    chosen = [one for one in here if any(e.keep for e in one.plan.activations)]
    assert len(chosen) == 1  # the one that told what it costs
    whole = [one for one in here if one.plan.activations and one not in chosen]
    assert len(whole) >= 7


MLP = ModuleProfile(
    ops=[
        op("aten.mm.default", 0, 3.0, 8),
        op("aten.silu.default", 0, 0.1, 8),
        op("aten.mul.Tensor", 0, 0.1, 8),
        op("aten.mm.default", 1, 3.0, 2),
    ],
    saved=24 * MIB,
    recomputed=3,
)


def with_parts(layers: int = 8) -> list[Kind]:
    """A layer of attention, 6 ms and 10 MiB in one op, and an MLP whose activation is cheap."""
    attention = op("aten.attention.default", 0, 6.0, 10)
    whole = ModuleProfile([attention, *MLP.ops], 34 * MIB, 4, 2 * MIB, {"mlp": MLP})
    return [Kind(whole, [f"layers.{i}" for i in range(layers)])]


def test_a_part_of_a_layer_is_recomputed_where_that_is_cheaper_than_all_of_it() -> None:
    entries = Layers(with_parts()).plan(0.6) or ()
    assert entries
    for entry in entries:  # its activation alone is recomputed, or a part of that
        assert all(name.endswith(".mlp") for name in entry.modules)
        assert ("aten.mm.default", 0) in kept(entry)
    least = Layers(with_parts()).plan(0.0) or ()
    assert [one.policy for one in least] == ["recompute"]
    assert least[0].modules == tuple(f"layers.{i}" for i in range(8))


def test_no_module_of_a_plan_lies_in_another() -> None:
    for share in range(16):
        plan = Plan("Model", Layers(with_parts()).plan(share / 16) or ())
        assert loads(plan.dumps()).activations == plan.activations  # which refuses such plans


def test_what_recomputing_a_part_saves_and_costs_adds_up() -> None:
    found = levels(with_parts()[0].profile)
    product = {("aten.mm.default", 0)}
    (cheap,) = (one for one in found if one.parts and kept(one.parts[0][1]) == product)
    assert cheap.memory == (34 - 24 + 8) * MIB
    assert cheap.ms == pytest.approx(0.2)
    assert (cheap.whole_ops, cheap.chosen_ops) == (0, 4)
    assert found[-1] == Level("", 34.0 * MIB, 0.0)
