"""A real Lightning Trainer with peakline's callback, given or found by its entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

from peakline.integrations.lightning import PeaklineCallback  # noqa: E402


class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.net(batch).square().mean()

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        self.net(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def batches() -> Any:
    return torch.utils.data.DataLoader(torch.ones(48, 64), batch_size=8)


def trainer(folder: Path, callbacks: list[Any], **more: Any) -> Any:
    return lightning.Trainer(
        accelerator=more.pop("accelerator", "cpu"),
        devices=1,
        max_epochs=2,
        accumulate_grad_batches=2,
        default_root_dir=folder,
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
        **{"logger": False, **more},
    )


def fit(folder: Path, callbacks: list[Any], **more: Any) -> Any:
    torch.manual_seed(0)
    made = trainer(folder, callbacks, **more)
    made.fit(Module(), batches(), batches())
    return made


def test_the_callbacks_peak_is_that_of_track(tmp_path: Path) -> None:
    callback = PeaklineCallback(tmp_path / "run.peak")
    fit(tmp_path, [callback])
    torch.manual_seed(0)
    module, training, evaluation = Module(), batches(), batches()
    with peakline.track(model=module) as run:
        trainer(tmp_path, []).fit(module, training, evaluation)
    assert callback.run is not None
    assert callback.run.peak("cpu").bytes == run.peak("cpu").bytes
    assert len(callback.run.steps) == len(run.steps) == 6
    assert callback.run.steps == run.steps
    assert peakline.load(tmp_path / "run.peak").peak("cpu").bytes == run.peak("cpu").bytes


def test_on_a_virtual_gpu_it_is_the_virtual_gpus_run(tmp_path: Path) -> None:
    callback = PeaklineCallback()
    with peakline.virtual_gpu() as run:
        fit(tmp_path, [callback], accelerator="gpu")
        assert callback.run is run
        peak = torch.cuda.max_memory_allocated()
    with peakline.virtual_gpu() as bare:
        fit(tmp_path, [], accelerator="gpu")
    assert run.peak().bytes == peak == bare.peak().bytes
    assert len(run.steps) == 6


def test_the_trainers_loggers_get_the_numbers(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    callback = PeaklineCallback()
    made = fit(tmp_path, [callback], logger=CSVLogger(tmp_path))
    rows = [row for row in made.logger.experiment.metrics if "peakline/step_peak" in row]
    assert callback.run is not None
    if not rows:  # written already
        import csv

        with open(Path(made.logger.log_dir) / "metrics.csv") as file:
            rows = [row for row in csv.DictReader(file) if row.get("peakline/step_peak")]
    assert [int(float(row["peakline/step_peak"])) for row in rows] == [
        step.peak_allocated for step in callback.run.steps
    ]


def test_a_training_that_fails_leaves_nothing_running(tmp_path: Path) -> None:
    class Failing(Module):
        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        trainer(tmp_path, [PeaklineCallback()]).fit(Failing(), batches())
    with peakline.track() as run:
        kept = torch.ones(1024)
    assert run.peak().bytes == kept.nbytes


def test_lightning_finds_it_when_the_variable_names_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(isinstance(c, PeaklineCallback) for c in trainer(tmp_path, []).callbacks)
    monkeypatch.setenv("PEAKLINE_LIGHTNING", str(tmp_path / "found.peak"))
    fit(tmp_path, [])
    assert len(peakline.load(tmp_path / "found.peak").steps) == 6
