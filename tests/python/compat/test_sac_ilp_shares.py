"""The shares that torch's own test of the planner expects, from the times that it has.

Its times are upstream's roofline, where products have one rate whatever their size; so are those of
"operator-level-cost-model" here. peakline's own model knows that larger products are quicker for
their size, and plans otherwise.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import peakline
from peakline.ilp_utils import (
    Graph,
    aggregate_stats,
    get_peak_memory_runtime_baseline,
    parse_module_info,
)
from peakline.mem_tracker import MemTracker, _ModState
from peakline.runtime_estimator import RuntimeEstimator
from peakline.sac_estimator import SACEstimator
from peakline.sac_ilp import sac_milp

pytest.importorskip("highspy")
WIDTH, HEADS, LENGTH, WORDS, LAYERS = 768, 12, 1024, 8192, 4
COST = "operator-level-cost-model"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).view(*x.shape[:2], HEADS, -1) for part in (self.q, self.k, self.v))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, None, 0.1)
        y = y.transpose(1, 2).contiguous().view(x.shape)
        out: Tensor = self.drop(self.out(y))
        return out


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU()
        self.down, self.drop = nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(self.down(self.act(self.up(x))))
        return out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_a, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm_b, self.feed_forward = nn.LayerNorm(WIDTH), FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_a(x))
        out: Tensor = x + self.feed_forward(self.norm_b(x))
        return out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        self.output.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        where = torch.arange(0, tokens.shape[1], device=tokens.device)
        x = self.drop(self.words(tokens) + self.places(where))
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.output(self.norm(x)).float()
        return out


def graph_of(model: Model, tokens: Tensor) -> Graph:
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    tracker, times, sac = MemTracker(), RuntimeEstimator(), SACEstimator()
    tracker.track_external(model, optimizer)
    with tracker:
        out = model(tokens)  # alive in backward, as in torch's test
        out.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        tracker.reset_mod_stats()
        out = model(tokens)
        out.sum().backward()
        last = tracker.get_tracker_snapshot("current")
        optimizer.step()
        optimizer.zero_grad()
    for stats in tracker.memory_tracking.values():
        stats.snapshots.setdefault(_ModState.POST_BW, [copy.deepcopy(last)])
    with times(COST):
        model(tokens).sum().backward()
    with sac(COST):
        loss = model(tokens).sum()
    loss.backward()
    return parse_module_info(aggregate_stats(model, tracker, times, sac, torch.device("cuda", 0)))


@pytest.fixture(scope="module")
def graph() -> Graph:
    with peakline.virtual_gpu("a100-40"), FakeTensorMode(), torch.device("cuda"):
        return graph_of(Model(), torch.randint(0, WORDS, (8, LENGTH)))


def test_the_peak_is_what_torchs_test_expects(graph: Graph) -> None:
    peak, _ = get_peak_memory_runtime_baseline(graph)
    assert peak == pytest.approx(2_583_888_896, rel=0.05)


def test_all_four_layers_share_the_recomputation(graph: Graph) -> None:
    _, compute = get_peak_memory_runtime_baseline(graph)
    plan, recompute, _ = sac_milp(copy.deepcopy(graph), memory_budget=1.6, world_size=4)
    assert set(plan) == {f"Model.layers.{i}" for i in range(LAYERS)}
    assert sorted(plan.values())[:3] == pytest.approx([0.55] * 3, abs=0.05)
    assert sum(plan.values()) == pytest.approx(2.35, abs=0.05)
    assert recompute / compute == pytest.approx(6.97 / 97.97, rel=0.25)


def test_a_budget_of_two_point_four_needs_no_plan_and_of_zero_point_eight_has_none(
    graph: Graph,
) -> None:
    plan, recompute, peak = sac_milp(copy.deepcopy(graph), memory_budget=2.4, world_size=4)
    assert (plan, recompute) == ({}, 0)
    assert peak > 1
    assert sac_milp(copy.deepcopy(graph), memory_budget=0.8, world_size=4) == ({}, 0, -1)


def test_running_every_op_is_as_near_to_the_step_as_torchs_test_asks() -> None:
    with peakline.virtual_gpu("a100-40"):

        def elapsed(estimator: RuntimeEstimator | None, mode: str = "") -> float:
            with torch.device("cuda"):
                model, tokens = Model(), torch.randint(0, WORDS, (8, LENGTH))
            optimizer = torch.optim.Adam(model.parameters(), foreach=True)

            def step() -> None:
                model(tokens).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

            step()
            if estimator is not None:
                with estimator(mode):
                    step()
                return estimator.total_runtime
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            step()
            start.record()
            for _ in range(3):
                step()
            end.record()
            torch.cuda.synchronize()
            return float(start.elapsed_time(end)) / 3

        actual = elapsed(None)
        with FakeTensorMode():
            ran = elapsed(RuntimeEstimator(), "operator-level-benchmark")
            modelled = elapsed(RuntimeEstimator(), "kernel-level-cost-model")
    assert actual / ran == pytest.approx(1, abs=0.2)
    assert actual / modelled == pytest.approx(1, abs=0.2)
