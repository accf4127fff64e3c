"""A real Accelerate loop with peakline's tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

from peakline.integrations.accelerate import PeaklineTracker, track  # noqa: E402


def train(accelerator: Any, model: nn.Module) -> None:
    """Four steps of two batches each, and an evaluation of larger ones."""
    data = torch.utils.data.DataLoader(torch.ones(64, 64), batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for batch in data:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        model(torch.ones(48, 64, device=accelerator.device))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))


@pytest.fixture(autouse=True)
def fresh_state() -> Any:
    """Accelerate keeps what it found out about the machine for the whole process."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_the_trackers_peak_is_that_of_track(tmp_path: Path) -> None:
    tracker = PeaklineTracker(tmp_path / "run.peak")
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=2, log_with=tracker, project_dir=tmp_path
    )
    accelerator.init_trackers("project")
    train(accelerator, model())
    accelerator.log({"loss": 1.0})
    accelerator.end_training()
    with peakline.track() as run:
        train(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2), model())
    assert tracker.run is not None
    assert tracker.run.peak("cpu").bytes == run.peak("cpu").bytes
    assert tracker.run.steps == run.steps
    assert len(run.steps) == 4
    assert peakline.load(tmp_path / "run.peak").peak("cpu").bytes == run.peak("cpu").bytes


def test_on_a_virtual_gpu_it_is_the_virtual_gpus_run() -> None:
    with peakline.virtual_gpu() as run:
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=2)
        with track(accelerator, every=1) as inner:
            assert inner is run
            train(accelerator, model())
        peak = torch.cuda.max_memory_allocated()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    with peakline.virtual_gpu() as bare:
        train(accelerate.Accelerator(gradient_accumulation_steps=2), model())
    assert run.peak().bytes == peak == bare.peak().bytes
    assert len(run.steps) == 4


def test_the_jobs_trackers_get_the_numbers() -> None:
    logged: list[tuple[int | None, dict[str, float]]] = []

    class Logged(accelerate.tracking.GeneralTracker):  # type: ignore[misc, name-defined]
        name = "logged"
        requires_logging_directory = False
        tracker = None

        def log(self, values: dict[str, float], step: int | None = None, **given: Any) -> None:
            logged.append((step, values))

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2, log_with=Logged())
    accelerator.init_trackers("project")
    with track(accelerator, every=2) as run:
        train(accelerator, model())
    assert [step for step, _ in logged] == [2, 4]
    assert [values["peakline/step_peak"] for _, values in logged] == [
        run.steps[1].peak_allocated,
        run.steps[3].peak_allocated,
    ]


def test_a_prepared_optimizer_given_to_track_has_its_steps_counted() -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    net = model()
    prepared = accelerator.prepare(torch.optim.AdamW(net.parameters()))
    with peakline.track(net, prepared) as run:
        for _ in range(3):
            accelerator.backward(net(torch.ones(8, 64)).sum())
            prepared.step()
            prepared.zero_grad()
    assert len(run.steps) == 3


def test_a_rank_of_several_gets_a_recording_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = PeaklineTracker(tmp_path / "run.peak")
    tracker.start()
    kept = torch.ones(64)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    tracker.finish()
    assert peakline.load(tmp_path / "run.3.peak").peak().bytes == kept.nbytes
