"""An estimate says which part of its peak is exact, modelled, guessed, or results alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline
from peakline import _cudnn

Parts = dict[str, int]

# An H200 on which the rules were measured with the torch that runs this test.
MEASURED = """
name = "NVIDIA H200"
[measured]
compute_capability = "9.0"
sm_count = 132
max_threads_per_sm = 2048
total_memory = 150109880320
shared_memory_per_block = 49152
shared_memory_per_block_opt_in = 232448
shared_memory_per_sm = 233472
context = "619MiB"
context_with_cublas = "685MiB"
context_with_cudnn = "703MiB"
[versions]
torch = ["{torch}"]
cudnn = ["9.19"]
"""


@pytest.fixture
def measured(tmp_path: Path) -> str:
    path = tmp_path / "measured.toml"
    release = ".".join(torch.__version__.split(".")[:2])
    path.write_text(MEASURED.format(torch=release))
    return str(path)


def confidence_of(
    work: Callable[[], object], gpu: str = "h200", **options: Any
) -> tuple[Parts, int, list[str]]:
    device = peakline.virtual_gpu(gpu, **options)
    with device:
        kept = work()
        peak = torch.cuda.max_memory_allocated()
        del kept
    parts = device.confidence()
    assert sum(parts.values()) == peak
    return parts, peak, device.notes()


def exactly(peak: int) -> Parts:
    return {"exact": peak, "modelled": 0, "guessed": 0, "outputs_only": 0}


def multiply() -> object:
    x = torch.rand(512, 512, device="cuda")
    return x @ x


def convolve() -> object:
    net = nn.Conv2d(128, 128, 3, padding=1, device="cuda", dtype=torch.bfloat16)
    return net(torch.rand(8, 128, 32, 32, device="cuda", dtype=torch.bfloat16))


def test_tensors_and_matrix_products_are_exact_where_they_were_measured(measured: str) -> None:
    parts, peak, notes = confidence_of(multiply, measured)
    assert parts == exactly(peak)
    assert notes == []


def test_on_a_gpu_that_was_never_measured_workspaces_are_modelled_and_one_line_says_so() -> None:
    parts, _, notes = confidence_of(multiply, "a100-80")
    assert parts["modelled"] == 8519680
    (note,) = notes
    assert "never measured on NVIDIA A100-SXM4-80GB" in note


def test_with_a_torch_that_was_never_measured_workspaces_are_modelled_and_one_line_says_so(
    tmp_path: Path,
) -> None:
    path = tmp_path / "other.toml"
    path.write_text(MEASURED.format(torch="1.13"))
    parts, _, notes = confidence_of(multiply, str(path))
    assert parts["modelled"] == 32 << 20
    (note,) = notes
    assert "measured with torch 1.13, not with this one" in note


def test_tensors_alone_are_exact_on_every_gpu() -> None:
    parts, peak, _ = confidence_of(lambda: torch.zeros(1 << 20, device="cuda").relu(), "a100-80")
    assert parts == exactly(peak)


def test_a_cudnn_workspace_at_the_peak_is_modelled(measured: str) -> None:
    parts, _, _ = confidence_of(convolve, measured)
    assert parts["modelled"] > 0
    assert parts["guessed"] == 0


def test_what_no_rule_explains_is_guessed(measured: str) -> None:
    def work() -> object:
        net = nn.LSTM(64, 64, 2, proj_size=32, device="cuda")  # none with projections was measured
        return net(torch.rand(10, 4, 64, device="cuda"))

    parts, _, _ = confidence_of(work, measured)
    assert parts["guessed"] > 8 << 20


def test_of_an_op_that_nobody_knows_the_results_alone_count_and_a_line_names_it(
    measured: str,
) -> None:
    parts, _, notes = confidence_of(
        lambda: torch.fft.fft(torch.rand(4096, device="cuda")), measured
    )
    assert parts["outputs_only"] == 4096 * 8
    (note,) = notes
    assert "of aten::_fft_" in note


def test_a_training_step_has_no_op_that_nobody_knows(measured: str) -> None:
    def work() -> object:
        embedding = nn.Embedding(100, 64, device="cuda")
        body = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, device="cuda")
        pictures = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU(), nn.MaxPool2d(2),
            nn.GroupNorm(4, 16), nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(1),
        ).cuda()  # fmt: skip
        modules = nn.ModuleList([embedding, body, pictures])
        optimizer = torch.optim.AdamW(modules.parameters())
        words = body(embedding(torch.zeros(4, 32, dtype=torch.long, device="cuda")))
        target = torch.zeros(128, dtype=torch.long, device="cuda")
        loss = nn.functional.cross_entropy(words.flatten(0, 1), target)
        loss = loss + pictures(torch.rand(2, 3, 32, 32, device="cuda")).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
        optimizer.step()
        return modules

    parts, _, notes = confidence_of(work, measured)
    assert parts["outputs_only"] == 0
    assert not any("only the results are counted" in note for note in notes)


def test_bytes_freed_before_the_peak_do_not_count(measured: str) -> None:
    def work() -> object:
        convolve()
        return torch.zeros(64 << 20, device="cuda")

    parts, peak, _ = confidence_of(work, measured, eager=True)
    assert parts == exactly(peak)


def test_every_device_has_its_own() -> None:
    gpu = peakline.virtual_gpu("h200", devices=2)
    with gpu:
        kept = [torch.zeros(1024, device="cuda:1")]
        kept.clear()
    assert gpu.confidence(0) == {}
    assert gpu.confidence(1)["exact"] == 4096


def test_a_saved_recording_tells_the_same(tmp_path: Path) -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu as run:
        multiply()
    run.save(tmp_path / "run.peak")
    loaded = json.loads(peakline.load(tmp_path / "run.peak").to_json())
    assert loaded["confidence"] == gpu.confidence()
    assert loaded["cudnn"] == ""


# Compiled regions run eagerly.


def train(net: Any) -> object:
    x = torch.rand(64, 256, device="cuda", requires_grad=True)
    net(x).sum().backward()
    return x


def test_what_a_compiled_region_allocates_is_guessed_and_named_when_it_runs_eagerly(
    measured: str,
) -> None:
    def work() -> object:
        @torch.compile
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x.exp() * 2

        return twice(torch.zeros(1 << 20, device="cuda"))

    parts, peak, notes = confidence_of(work, measured, eager=True)
    assert parts == {**exactly(4 << 20), "guessed": peak - (4 << 20)}
    (note,) = notes
    assert "torch.compile was left out" in note
    assert "twice" in note


@pytest.mark.parametrize("in_place", [False, True])
def test_the_backward_pass_of_a_compiled_module_is_guessed_too(
    measured: str, in_place: bool
) -> None:
    def work(compiles: bool) -> Callable[[], object]:
        def run() -> object:
            net: Any = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Tanh())
            if compiles and in_place:
                net.compile()
            elif compiles:
                net = torch.compile(net)
            return train(net)

        return run

    eager, peak, _ = confidence_of(work(False), measured)
    assert eager == exactly(peak)
    parts, compiled_peak, notes = confidence_of(work(True), measured, eager=True)
    assert compiled_peak == peak
    # All but the input, the sum, and the gradient that the sum sends back.
    assert parts["guessed"] >= 3 * (64 << 10) * 1
    assert parts["exact"] <= 2 * (64 << 10) + 2048
    assert "Sequential" in notes[0]


def test_what_runs_beside_a_compiled_region_stays_exact(measured: str) -> None:
    def work() -> object:
        compiled = torch.compile(nn.Tanh())
        train(compiled)
        return torch.zeros(64 << 20, device="cuda")

    parts, peak, _ = confidence_of(work, measured)
    assert parts == exactly(peak)


def test_a_program_that_compiles_nothing_gets_no_such_line(measured: str) -> None:
    def work() -> object:
        return train(torch.compile(nn.Tanh(), disable=True))

    parts, _, notes = confidence_of(work, measured)
    assert parts["guessed"] == 0
    assert notes == []


def test_a_compiled_module_does_not_keep_itself_alive() -> None:
    with peakline.virtual_gpu("h200", eager=True):
        net = torch.compile(nn.Linear(512, 512, device="cuda"))
        del net
        assert torch.cuda.memory_allocated() == 0


# cuDNN.


def test_without_cudnn_a_line_says_who_stands_in(
    monkeypatch: pytest.MonkeyPatch, measured: str
) -> None:
    monkeypatch.setenv("PEAKLINE_CUDNN", "off")
    assert confidence_of(multiply, measured)[2] == []
    (note,) = confidence_of(convolve, measured)[2]
    assert "PEAKLINE_CUDNN=off, so rules stand in" in note
    monkeypatch.delenv("PEAKLINE_CUDNN")
    monkeypatch.setattr(_cudnn, "planner_files", dict)
    (note,) = confidence_of(convolve, measured)[2]
    assert "no cuDNN was found, so rules stand in" in note
