"""`peakline.plan` of a function, in this process."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import peakline
from peakline._plan.probe import Probe

MIB = 2**20


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def train(rows: int = 4096) -> None:
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(rows, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_smaller_budget_never_gives_a_higher_peak_and_what_is_planned_can_be_applied(
    tmp_path: Path,
) -> None:
    levers = ["activations", "optimizer.implementation"]
    whole = peakline.plan(train, memory="8GiB", levers=levers)
    assert whole.fits
    peaks = sorted({one["peak_reserved"] for one in whole.plans})
    middle, smallest = (
        peakline.plan(train, memory=budget, levers=levers)
        for budget in (peaks[len(peaks) // 2], peaks[0])
    )
    assert smallest.peak_reserved == peaks[0] <= middle.peak_reserved <= peaks[len(peaks) // 2]
    smallest.save(tmp_path / "p.json")
    model = peakline.checkpoint(Model(), tmp_path / "p.json")
    assert any("forward" in vars(layer) for layer in model.layers)


def test_nothing_fits_says_the_floor_and_saves_no_plan(tmp_path: Path) -> None:
    found = peakline.plan(train, memory=MIB, levers=["optimizer.implementation"])
    assert found.plan is None
    assert not found.fits
    assert found.floor == min(one["peak_reserved"] for one in found.plans)
    assert found.short_by == found.floor - MIB
    with pytest.raises(ValueError, match="no plan fits"):
        found.save(tmp_path / "p.json")


@pytest.mark.parametrize("kind", ["SGD", "Adagrad"])
def test_fused_optimizers_for_which_torch_tells_no_shapes_are_planned(kind: str) -> None:
    def plain() -> None:
        model = torch.nn.Linear(512, 512).cuda()
        optimizer = getattr(torch.optim, kind)(model.parameters())
        for _ in range(3):
            model(torch.ones(4, 512, device="cuda")).sum().backward()
            optimizer.step()

    found = peakline.plan(plain, memory="1GiB", levers=["optimizer.implementation"])
    assert found.cannot == []
    assert ["fused optimizer"] in [one["changes"] for one in found.plans]


def test_a_lever_with_which_the_function_fails_is_dropped_and_named() -> None:
    def picky() -> None:
        model = torch.nn.Linear(512, 512).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        if optimizer.defaults["fused"]:
            raise KeyError("not this one")
        for _ in range(3):
            model(torch.ones(4, 512, device="cuda")).sum().backward()
            optimizer.step()

    found = peakline.plan(picky, memory="1GiB", levers=["optimizer.implementation"])
    assert found.cannot == [{"changes": ["fused optimizer"], "why": "KeyError: 'not this one'"}]


def test_arguments_of_the_function_vary() -> None:
    found = peakline.plan(
        train, memory="4GiB", vary={"rows": [256, 4096]}, levers=["optimizer.implementation"]
    )
    assert found.plan is not None
    assert found.plan.arguments == {"rows": 4096}  # more samples a second


def test_what_was_compiled_before_in_this_process_does_not_change_what_is_counted() -> None:
    """Of a program that compiles samples are counted otherwise: this one does not."""
    torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.zeros(1, 2))
    found = peakline.plan(train, memory="4GiB", levers=["optimizer.implementation"])
    assert {one["throughput_unit"] for one in found.plans} == {"samples/s"}
    for one in found.plans:
        assert one["throughput"] == pytest.approx(4096 / one["step_ms"] * 1e3, rel=1e-4)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ValueError, match="there is no lever 'magic'"):
        peakline.plan(train, levers=["magic"])
    with pytest.raises(ValueError, match="margin"):
        peakline.plan(train, margin=2.0)
    with pytest.raises(ValueError, match=r"cannot read 'nowhere.py'|no such"):
        peakline.plan("nowhere.py", memory="1GiB")


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(256, 1024, bias=False), nn.Linear(256, 1024, bias=False)
        self.down = nn.Linear(1024, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.mlp = nn.LayerNorm(256), nn.Linear(256, 256), Gated()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x + self.mix(x)))


def test_modules_inside_layers_are_looked_at() -> None:
    rows, probe = 4096, Probe()
    gpu = peakline.virtual_gpu("h200")
    with probe.before(gpu), gpu:
        model = nn.Sequential(*(Layer() for _ in range(3))).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(rows, 256, device="cuda", requires_grad=True)).sum().backward()
        optimizer.step()
    (kind,) = probe.found().kinds
    assert kind.members == ["0", "1", "2"]
    mlp, wide, narrow = kind.profile.parts["mlp"], rows * 1024 * 4, rows * 256 * 4
    assert mlp.saved == 4 * wide  # both products, silu's result, and what is multiplied
    assert mlp.input_bytes == 0  # the products need it, so it is there anyway
    assert [op.call for op in mlp.ops if op.name == "aten.mm.default"] == [0, 1, 2]
    again = [op.name for op in mlp.ops[: mlp.recomputed]]
    assert again.count("aten.mm.default") == 2  # the last product is not run again
    assert "aten.mul.Tensor" in again
    # The layer's own: its input, the sum that the norm is given, and the norm's result.
    small = kind.profile.saved - mlp.saved - 3 * narrow
    assert 0 <= small < narrow  # the norm's numbers for each row
    assert not any("forward" in vars(part) for part in model.modules())


def gated_train() -> None:
    model = nn.Sequential(*(Layer() for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(16384, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_plan_may_recompute_modules_inside_layers_and_can_be_applied() -> None:
    found = peakline.plan(gated_train, memory="8GiB", levers=["activations"])
    inside = [one["plan"] for one in found.plans if ".mlp" in str(one["changes"])]
    assert inside
    torch.manual_seed(0)
    plain = nn.Sequential(*(Layer() for _ in range(4)))
    planned = peakline.checkpoint(copy.deepcopy(plain), inside[0])
    x = torch.randn(8, 256)
    for model in (plain, planned):
        model(x).pow(2).sum().backward()
    for one, other in zip(plain.parameters(), planned.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]
