"""What torch's own tests of SACEstimator assert, and what its callers rely on."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import peakline
from peakline.sac_estimator import SACEstimator, SACStats

COST = "operator-level-cost-model"


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 10)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.fc(x))
        return torch.sin_(torch.cos_(x))


class Block(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1))
        self.out = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.out(self.inner(x)), -1)


def estimated(model: nn.Module, x: torch.Tensor, mode: str = COST) -> SACEstimator:
    estimator = SACEstimator()
    with estimator(estimate_mode_type=mode):
        loss = model(x).sum()
    loss.backward()
    return estimator


def test_views_random_and_in_place_ops_are_found() -> None:
    with FakeTensorMode():
        stats = estimated(Small(), torch.rand(10, 5)).sac_mod_stats["Small"]
    assert stats.func_names == ["t", "addmm", "relu_", "cos_", "sin_"]
    assert stats.view_like_ops == [0]
    assert stats.rand_ops == []
    assert stats.inplace_ops == [(2, 1), (3, 1), (4, 1)]


def test_an_op_that_gives_its_arguments_memory_is_a_view_although_it_does_not_say_so() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(self.inner(x))

    with FakeTensorMode():
        stats = estimated(Three(), torch.rand(2, 4, 8)).sac_mod_stats["Three"]
    assert stats.func_names == ["t", "view", "mm", "_unsafe_view", "sin"]
    assert stats.view_like_ops == [0, 1, 3]
    assert stats.memory[3] == 0


@pytest.mark.parametrize("mode", [COST, "operator-level-benchmark"])
def test_the_same_is_found_on_a_virtual_gpu(mode: str) -> None:
    with peakline.virtual_gpu("h200"):
        model = Small().cuda()
        stats = estimated(model, torch.rand(10, 5, device="cuda"), mode).sac_mod_stats["Small"]
    assert stats.inplace_ops == [(2, 1), (3, 1), (4, 1)]
    assert stats.memory[0] == 0
    assert stats.runtimes[1] > 0


def test_memory_rounds_to_what_the_gpus_allocator_gives() -> None:
    with peakline.virtual_gpu("h200"):
        model = Block().cuda()
        stats = estimated(model, torch.rand(3, 64, device="cuda")).sac_mod_stats["Block"]
    assert all(size % 512 == 0 for size in stats.memory)
    assert sum(stats.memory) > 0


def test_the_modules_own_result_is_free_to_keep() -> None:
    with FakeTensorMode():
        stats = estimated(Block(), torch.rand(8, 64)).sac_mod_stats["Block"]
    assert stats.func_names[-1] == "_softmax"
    assert stats.memory[-1] == 0


def test_random_ops_are_one_candidate() -> None:
    with FakeTensorMode():
        found = estimated(Block(), torch.rand(8, 64))
    stats, order = found.sac_mod_stats["Block"], found.sac_mod_greedy_order_meta["Block"]
    assert stats.rand_ops
    assert set(order.random_ops_group) == {stats.rand_ops[0]}
    ratios = [use.msps for use in order.msps_meta]
    assert ratios == sorted(ratios, reverse=True)


def test_modules_without_children_have_no_stats() -> None:
    with FakeTensorMode():
        found = estimated(Block(), torch.rand(8, 64))
    assert set(found.sac_mod_stats) == {"Block", "Block.inner"}


def test_the_curve_ends_with_all_recomputed_and_lines_follow_it() -> None:
    with FakeTensorMode():
        found = estimated(Block(), torch.rand(8, 64))
    found.pwlf_sac_tradeoff_curve(n_segments=2)
    trade = found.sac_mod_tradeoff_stats["Block"]
    assert list(trade.tradeoff_curve.values())[-1] == pytest.approx(1.0)
    assert len(trade.slopes) == len(trade.intercepts) == trade.n_segments
    assert len(trade.fit_breaks) == trade.n_segments + 1
    assert trade.sac_memory == sum(found.sac_mod_stats["Block"].memory)


def test_graphs_are_svg_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeTensorMode():
        found = estimated(Block(), torch.rand(8, 64))
    found.pwlf_sac_tradeoff_curve(save_tradeoff_graphs=True)
    root = ET.parse(tmp_path / "tradeoff_graphs" / "Block.svg").getroot()
    assert root.tag.endswith("svg")
    assert root.findall(".//{*}circle")


def test_an_op_in_place_on_what_a_skipped_op_made_starts_its_own_group() -> None:
    class Clones(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x.clone().add_(1)) * 2

    with FakeTensorMode():
        stats = estimated(Clones(), torch.rand(4, 4, requires_grad=True)).sac_mod_stats["Clones"]
    assert stats.inplace_ops == [(0, 0)]


def test_it_prints_ops_and_trade_offs(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeTensorMode():
        found = estimated(Block(), torch.rand(8, 64))
    found.display_modulewise_sac_stats(depth=1, print_tabular=True)
    text = capsys.readouterr().out
    assert "Module: Block" in text
    assert "native_dropout" in text or "bernoulli" in text
    assert "Always Recomputed" in text


def test_stats_are_made_by_keyword() -> None:
    stats = SACStats(
        func_names=["mm"],
        runtimes=[1.0],
        memory=[2],
        view_like_ops=[],
        rand_ops=[],
        saved_autograd_ops=[],
        inplace_ops=[],
        force_store_random=False,
    )
    assert stats.memory == [2]
