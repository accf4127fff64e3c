"""What torch's own tests of the checkpointing planner assert, and that its plans are the best."""

from __future__ import annotations

import copy
import itertools
import random
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import peakline
from peakline import ilp_utils, sac_ilp
from peakline.ilp_utils import Graph, aggregate_stats, parse_module_info
from peakline.mem_tracker import MemTracker, _ModState
from peakline.runtime_estimator import RuntimeEstimator
from peakline.sac_estimator import SACEstimator, SACStats
from peakline.sac_ilp import get_optimal_checkpointing_policy_per_module, sac_milp

pytest.importorskip("highspy")
COST = "operator-level-cost-model"
MIB = 2**20


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, layers: int = 4, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def model_graph(device: str = "cuda") -> Graph:
    with FakeTensorMode():
        with torch.device(device):
            model = Model()
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
        x = torch.rand(64, 256, 256, device=device)

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            step()
            tracker.reset_mod_stats()
            model(x).sum().backward()
            last = tracker.get_tracker_snapshot("current")
            optimizer.step()
            optimizer.zero_grad()
        for stats in tracker.memory_tracking.values():
            stats.snapshots.setdefault(_ModState.POST_BW, [copy.deepcopy(last)])
        times, sac = RuntimeEstimator(), SACEstimator()
        with times(COST):
            step()
        with sac(COST):
            loss = model(x).sum()
        loss.backward()
        info = aggregate_stats(model, tracker, times, sac, torch.device(device, 0))
    return parse_module_info(info)


@pytest.fixture(scope="module")
def graph() -> Graph:
    with peakline.virtual_gpu("h200"):
        return model_graph()


def budget_between(graph: Graph, share: float) -> float:
    """GiB: `share` of the way from the least that any plan needs to none at all."""
    peak, _ = ilp_utils.get_peak_memory_runtime_baseline(graph)
    saved = sum(n["act_fw_per_module"] for n in graph.nodes if n["fqn"].count(".") == 2)
    return (peak - saved + share * saved) / 2**30


def test_a_tight_budget_checkpoints_layers_and_costs_a_part_of_the_step(graph: Graph) -> None:
    _, compute = ilp_utils.get_peak_memory_runtime_baseline(graph)
    budget = budget_between(graph, 0.5)
    plan, recompute, peak = sac_milp(copy.deepcopy(graph), memory_budget=budget)
    assert plan
    assert all(name.startswith("Model.layers.") for name in plan)
    assert all(0 < share <= 1 for share in plan.values())
    assert 0 < recompute < compute / 2
    assert 0 < peak <= budget * 2**30 * 1.0001


def test_a_budget_that_is_enough_needs_no_plan(graph: Graph) -> None:
    plan, recompute, peak = sac_milp(copy.deepcopy(graph), memory_budget=100)
    assert (plan, recompute) == ({}, 0)
    assert peak > 1


def test_a_budget_that_nothing_meets_has_no_plan(graph: Graph) -> None:
    assert sac_milp(copy.deepcopy(graph), memory_budget=0.001) == ({}, 0, -1)


def test_units_limit_what_is_checkpointed(graph: Graph) -> None:
    budget = budget_between(graph, 0.8)
    units = ["Model.layers.0", "Model.layers.1"]
    plan, _, _ = sac_milp(copy.deepcopy(graph), memory_budget=budget, ac_units=units)
    assert plan
    assert set(plan) <= set(units)
    inside = [n["fqn"] for n in graph.nodes if n["fqn"].startswith("Model.layers.0.")][:1]
    kept, _, _ = sac_milp(copy.deepcopy(graph), memory_budget=budget, fsdp_units=inside)
    assert "Model.layers.0" not in kept


def test_ranks_share_parameters(graph: Graph) -> None:
    one = sac_milp(copy.deepcopy(graph), memory_budget=100, world_size=1)[2]
    four = sac_milp(copy.deepcopy(graph), memory_budget=100, world_size=4)[2]
    assert four < one


def random_graph(seed: int) -> Graph:
    """A root, and two to four layers side by side."""
    rng = random.Random(seed)
    layers = rng.randint(2, 4)
    names = ["M", *(f"M.{i}" for i in range(layers))]
    graph = Graph(len(names))
    total = 0
    rows = []
    for i, name in enumerate(names):
        memory = rng.randint(40, 200) * MIB
        saved = int(memory * rng.uniform(0.5, 1.0))
        total += saved if i else 0
        slope = rng.uniform(0.2, 1.5)
        rows.append((name, memory, saved, total, slope))
    graph.fw_post_order = [*names[1:], "M"]
    for index, (name, memory, saved, so_far, slope) in enumerate(rows):
        node: Any = {
            "fqn": name,
            "index": index,
            "pos_fw_post_order": graph.fw_post_order.index(name),
            "param_per_module": 10 * MIB,
            "grad_total": rng.randint(0, 10) * MIB,
            "act_fw_per_module": saved,
            "act_grad_per_module": rng.randint(1, 30) * MIB,
            "act_total": so_far if index else total,
            "is_leaf": index == 0,
            "sac_runtime": rng.uniform(1, 20),
            "sac_memory": memory,
            "n_segments": 2,
            "slopes": [slope / 2, slope],
            "intercepts": [0.0, -slope / 4],
            "tradeoff_curve": OrderedDict(),
        }
        graph.add_node(node)
    graph.ad_matrix[0] = 1
    for i in range(1, len(names)):
        graph.ad_matrix[i][i] = 1
    return graph


def best_by_trying(graph: Graph, budget: float) -> float | None:
    """Every set of layers, each with its memory discarded in one of a few shares and to the bound
    where the budget is met exactly."""
    import numpy as np

    problem = sac_ilp._Problem(graph, budget, 1, None, None)
    best: float | None = None
    layers = range(1, len(graph.nodes))
    for count in range(len(graph.nodes)):
        for chosen in itertools.combinations(layers, count):
            least = [problem._least(i) for i in chosen]
            grids = [np.unique([low, 0.5, 1.0]).clip(low, 1) for low in least]
            for shares in itertools.product(*grids):
                discard = [0.0] * len(graph.nodes)
                for i, share in zip(chosen, shares, strict=True):
                    discard[i] = float(max(share, 1e-12))
                try:
                    ms, _ = problem.check(discard)
                except ValueError:
                    continue
                best = ms if best is None else min(best, ms)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_that_is_found_by_trying_is_better(seed: int) -> None:
    graph = random_graph(seed)
    peak, _ = max(
        (n["act_total"] + n["act_grad_per_module"] + n["grad_total"], 0) for n in graph.nodes
    )
    budget = (peak + 10 * MIB) * random.Random(seed).uniform(0.45, 0.9)
    found = best_by_trying(graph, budget)
    plan, ms, _ = sac_milp(graph, memory_budget=budget / 2**30)
    if found is None:
        # Only shares between those that were tried could be a plan.
        assert plan or ms == 0
    else:
        assert ms <= found + 0.006  # it is rounded


def random_stats(seed: int) -> SACStats:
    rng = random.Random(seed)
    count = rng.randint(3, 10)
    inplace = [(count - 1, rng.choice([count - 1, 0]))]
    views = [1] if rng.random() < 0.5 else []
    return SACStats(
        func_names=[str(i) for i in range(count)],
        runtimes=[rng.uniform(0.1, 9) for _ in range(count)],
        memory=[0 if i in views else rng.randint(0, 50) for i in range(count)],
        view_like_ops=views,
        rand_ops=[i for i in range(2, count - 1) if rng.random() < 0.3],
        saved_autograd_ops=[],
        inplace_ops=inplace,
        force_store_random=rng.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(25))
def test_the_choice_of_ops_is_the_best_of_all_choices(seed: int) -> None:
    stats = random_stats(seed)
    share = random.Random(seed).uniform(0, 1)
    fixed, equal = sac_ilp._rules(stats)
    budget = -(-share * sum(stats.memory) // 1)
    budget = abs(budget)
    best: float | None = None
    for save in itertools.product((0, 1), repeat=len(fixed)):
        legal = all(f in (-1, s) for f, s in zip(fixed, save, strict=True))
        legal = legal and all(save[a] == save[b] for a, b in equal)
        size = sum(s * m for s, m in zip(save, stats.memory, strict=True))
        if legal and size <= budget:
            ms = sum((1 - s) * t for s, t in zip(save, stats.runtimes, strict=True))
            best = ms if best is None else min(best, ms)
    answer = get_optimal_checkpointing_policy_per_module(stats, share)
    if best is None:
        assert answer == []
    else:
        ms = sum((1 - s) * t for s, t in zip(answer, stats.runtimes, strict=True))
        assert ms == pytest.approx(best)


def upstreams_stats() -> SACStats:
    rows = [
        ("copy_", 5, 0),
        ("add", 5, 100),
        ("div", 8, 100),
        ("mm", 15, 120),
        ("native_dropout", 15, 0),
        ("linear", 9, 100),
        ("t", 1, 0),
        ("relu_", 5, 0),
    ]
    return SACStats(
        func_names=[row[0] for row in rows],
        runtimes=[row[1] for row in rows],
        memory=[row[2] for row in rows],
        view_like_ops=[6],
        rand_ops=[4],
        saved_autograd_ops=[],
        inplace_ops=[(0, 0), (7, 5)],
        force_store_random=False,
    )


@pytest.mark.parametrize(
    ("memory", "save"),
    [
        (0, [1, 0, 0, 0, 1, 0, 0, 0]),
        (100, [1, 0, 0, 0, 1, 1, 0, 1]),
        (120, [1, 0, 0, 1, 1, 0, 0, 0]),
        (200, [1, 0, 1, 0, 1, 1, 0, 1]),
        (320, [1, 0, 1, 1, 1, 1, 0, 1]),
        (420, [1, 1, 1, 1, 1, 1, 0, 1]),
    ],
)
def test_upstreams_example_is_solved_as_upstream_does(memory: int, save: list[int]) -> None:
    answer = get_optimal_checkpointing_policy_per_module(
        sac_stats=upstreams_stats(), memory_budget=memory / 420
    )
    assert answer == save


@pytest.mark.parametrize("budget", [-0.1, 1.1])
def test_a_budget_is_a_share(budget: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        get_optimal_checkpointing_policy_per_module(upstreams_stats(), budget)


def test_names_that_only_begin_alike_are_not_nested() -> None:
    assert ilp_utils.is_submodule("M.layers.1.norm", "M.layers.1")
    assert not ilp_utils.is_submodule("M.layers.10", "M.layers.1")
    assert not ilp_utils.is_submodule("Outer.M.a", "M")


def test_stats_of_modules_that_did_not_run_are_refused() -> None:
    info: Any = {
        "mod_order": {"fw_pre_order": ["A"], "fw_post_order": ["A"]},
        "mod_stats": [],
    }
    with pytest.raises(AssertionError, match="same modules"):
        parse_module_info(info)
