"""What torch's own tests of RuntimeEstimator assert, and what its callers rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import peakline
from peakline.runtime_estimator import RuntimeEstimator

COST, RUN = "operator-level-cost-model", "operator-level-benchmark"
KERNELS = "kernel-level-cost-model"  # peakline's own


class Net(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.a = nn.Linear(width, 4 * width)
        self.b = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def estimated(mode: str, device: str = "cuda", rows: int = 512) -> RuntimeEstimator:
    with torch.device(device):
        model = Net()
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    x = torch.rand(rows, 256, device=device, requires_grad=True)
    step(model, optimizer, x)
    estimator = RuntimeEstimator()
    with estimator(estimate_mode_type=mode):
        step(model, optimizer, x)
    return estimator


@pytest.fixture
def gpu() -> Iterator[peakline.Run]:
    with peakline.virtual_gpu("h200") as run:
        yield run


@pytest.mark.parametrize("fake", [True, False])
@pytest.mark.parametrize("mode", [COST, KERNELS, RUN])
@pytest.mark.usefixtures("gpu")
def test_a_step_on_a_virtual_gpu_takes_time_in_all_and_by_module(mode: str, fake: bool) -> None:
    if fake:
        with FakeTensorMode():
            found = estimated(mode)
    else:
        found = estimated(mode)
    whole = found.mod_runtimes["Net"]
    assert found.total_runtime > whole["fw"] + whole["bw"] > 0  # the optimizer's is in no module
    parts = sum(found.mod_runtimes[f"Net.{name}"]["fw"] for name in "ab")
    assert 0 < parts < whole["fw"]
    assert found.total_runtime == pytest.approx(sum(found.mod_runtimes["Global"].values()))


def test_modules_are_listed_as_they_are_entered_and_left() -> None:
    with FakeTensorMode():
        found = estimated(COST, "cpu")
    assert found.mod_fw_pre_order == ["Net", "Net.a", "Net.b"]
    assert found.mod_fw_post_order == ["Net.a", "Net.b", "Net"]
    assert sorted(found.mod_bw_pre_order[:2]) == ["Net", "Net.b"]  # they end with one tensor
    assert found.mod_bw_pre_order[2:] == ["Net.a"]


@pytest.mark.parametrize("mode", [COST, KERNELS])
def test_without_a_gpu_the_cost_models_answer_for_an_h200(mode: str) -> None:
    with FakeTensorMode():
        found = estimated(mode, "cpu")
    assert found.total_runtime > 0


@pytest.mark.usefixtures("gpu")
def test_the_operator_level_model_is_upstreams_to_the_last_digit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator as Upstream
    from torch.utils import _runtime_estimation as upstream

    # What upstream would read from the GPU: the data sheet's rates of an H200.
    tflops = {torch.float32: 67.0, torch.bfloat16: 989.0, torch.float16: 989.0}
    monkeypatch.setattr(upstream, "get_device_tflops", lambda dtype: tflops[dtype])
    monkeypatch.setattr(upstream, "get_gpu_dram_gbps", lambda: 4800)

    def run(made: Any, dtype: torch.dtype) -> Any:
        with FakeTensorMode(), torch.device("cuda"):
            layers: list[nn.Module] = [nn.Linear(1024, 1024, dtype=dtype), nn.ReLU()]
            if dtype == torch.float32:  # upstream refuses attention in 16 bits
                layers.append(nn.TransformerEncoderLayer(1024, 16))
            model = nn.Sequential(*layers)
            optimizer = torch.optim.Adam(model.parameters(), foreach=True)
            x = torch.rand(64, 16, 1024, dtype=dtype)
            step(model, optimizer, x)
            with made(estimate_mode_type=COST):
                step(model, optimizer, x)
        return made

    for dtype in (torch.float32, torch.bfloat16):
        ours, theirs = run(RuntimeEstimator(), dtype), run(Upstream(), dtype)
        assert ours.total_runtime == pytest.approx(theirs.total_runtime, rel=1e-12)
        assert set(ours.mod_runtimes) == set(theirs.mod_runtimes)
        for name, times in theirs.mod_runtimes.items():
            assert dict(ours.mod_runtimes[name]) == pytest.approx(dict(times), rel=1e-12)


def test_a_product_on_the_roofline_by_hand() -> None:
    with FakeTensorMode():
        a = torch.empty(8192, 8192, dtype=torch.bfloat16)
        estimator = RuntimeEstimator(gpu="h200")
        with estimator(COST):
            a @ a
        # 8192^3 multiply-adds at three quarters of 989 TFLOP/s: 0.741 ms; 403 MB would take 0.084.
        assert estimator.total_runtime == pytest.approx(0.741, abs=0.001)
        with estimator(COST):
            a + a
        # 403 MB at 4.8 TB/s.
        assert estimator.total_runtime == pytest.approx(0.0839, abs=0.0001)


def test_small_kernels_take_their_start_in_the_kernel_level_model_only() -> None:
    with FakeTensorMode():
        x = torch.empty(8)
        estimator = RuntimeEstimator(gpu="h200")
        with estimator(COST):
            x + x
        flat = estimator.total_runtime
        with estimator(KERNELS):
            x + x
    assert flat < 1e-7
    assert estimator.total_runtime > 1e-3


def test_more_rows_take_longer_and_a_slower_gpu_too() -> None:
    def forward(mode: str, gpu: str, rows: int) -> float:
        with FakeTensorMode():
            model, x = Net(2048), torch.rand(rows, 2048)
            estimator = RuntimeEstimator(gpu=gpu)
            with estimator(mode):
                model(x)
        return estimator.total_runtime

    for mode in (COST, KERNELS):
        assert forward(mode, "h200", 65536) > 5 * forward(mode, "h200", 8192)
        assert forward(mode, "a100", 65536) > 1.5 * forward(mode, "h200", 65536)


def test_running_ops_needs_a_gpu_and_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with (
        FakeTensorMode(),
        pytest.raises(RuntimeError, match="needs a GPU"),
        RuntimeEstimator()(RUN),
    ):
        pass


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="roofline"):
        RuntimeEstimator()("roofline")
    with pytest.raises(NotImplementedError, match=KERNELS):
        RuntimeEstimator()("roofline")


def test_real_tensors_are_refused_since_they_would_compute() -> None:
    with pytest.raises(AssertionError, match="FakeTensorMode"), RuntimeEstimator()(COST):
        pass


def test_a_second_use_starts_anew() -> None:
    with FakeTensorMode():
        model, x = Net(), torch.rand(8, 256)
        estimator = RuntimeEstimator()
        with estimator(COST):
            model(x)
        first = estimator.total_runtime
        with estimator(COST):
            model(x)
    assert estimator.total_runtime == pytest.approx(first)
    assert len(estimator.mod_fw_pre_order) == 3


def test_it_prints_modules_down_to_a_depth(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeTensorMode():
        found = estimated(COST, "cpu")
    capsys.readouterr()
    found.display_modulewise_stats(depth=1)
    text = capsys.readouterr().out
    assert "Net fw: " in text
    assert "Net.a" not in text
