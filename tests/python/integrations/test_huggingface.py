"""A real Hugging Face Trainer with peakline's callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import peakline

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, and Trainer needs it")

from peakline.integrations.huggingface import PeaklineCallback  # noqa: E402


class Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(32) + index
        return {"input_ids": ids, "labels": ids}


def trainer(folder: Path, callbacks: list[Any], **more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=256, n_positions=64)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        **{"report_to": [], **more},
    )
    return transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Texts(),
        eval_dataset=Texts(),
        callbacks=callbacks,
    )


class Begin(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Starts a `track` of the test's own where training begins."""

    def __init__(self, tracking: peakline.track) -> None:
        self._tracking = tracking

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.run = self._tracking.start()


def test_the_callbacks_peak_is_that_of_track(tmp_path: Path) -> None:
    callback = PeaklineCallback(tmp_path / "run.peak")
    trainer(tmp_path, [callback]).train()
    plain = trainer(tmp_path, [])
    tracking = peakline.track(model=plain.model)
    begin = Begin(tracking)
    plain.add_callback(begin)
    plain.train()
    tracking.stop()
    run = begin.run
    assert callback.run is not None
    assert callback.run.peak("cpu").bytes == run.peak("cpu").bytes
    assert callback.run.peak("cpu").by_category == run.peak("cpu").by_category
    assert len(callback.run.steps) == len(run.steps) == 4
    assert callback.run.steps == run.steps
    assert peakline.load(tmp_path / "run.peak").peak("cpu").bytes == run.peak("cpu").bytes


def test_around_train_only_the_trainers_running_loss_is_more(tmp_path: Path) -> None:
    callback = PeaklineCallback()
    trainer(tmp_path, [callback]).train()
    plain = trainer(tmp_path, [])
    with peakline.track(model=plain.model) as run:
        plain.train()
    assert callback.run is not None
    loss = torch.tensor(0.0)  # which train() makes before its callbacks hear that it begins
    assert run.peak("cpu").bytes - callback.run.peak("cpu").bytes == loss.nbytes


def test_on_a_virtual_gpu_it_is_the_virtual_gpus_run(tmp_path: Path) -> None:
    callback = PeaklineCallback()
    with peakline.virtual_gpu() as run:
        trainer(tmp_path, [callback]).train()
        assert callback.run is run
        peak = torch.cuda.max_memory_allocated()
    with peakline.virtual_gpu() as bare:
        trainer(tmp_path, []).train()
    assert run.peak().bytes == peak == bare.peak().bytes
    assert len(run.steps) == 4


def test_the_trainers_logs_have_the_numbers(tmp_path: Path) -> None:
    callback = PeaklineCallback()
    training = trainer(tmp_path, [callback])
    training.train()
    logged = [row for row in training.state.log_history if "loss" in row]
    assert [row["peakline_step_peak"] for row in logged] == [
        step.peak_allocated
        for step in callback.run.steps  # type: ignore[union-attr]
    ]


def test_attached_in_front_the_reporting_callbacks_see_them_too(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    training = trainer(tmp_path, [], report_to=["tensorboard"])
    callback = PeaklineCallback().attach(training)
    training.train()
    found = next(tmp_path.rglob("events.out.tfevents.*"))
    events = EventAccumulator(str(found)).Reload()
    name = next(tag for tag in events.Tags()["scalars"] if tag.endswith("peakline_peak_allocated"))
    last = events.Scalars(name)[-1].value
    assert callback.run is not None
    assert last == pytest.approx(callback.run.peak("cpu").bytes, rel=1e-6)  # float32


def test_after_a_training_that_failed_the_next_one_is_tracked(tmp_path: Path) -> None:
    failing = PeaklineCallback()
    training = trainer(tmp_path, [failing])
    training.data_collator = lambda rows: 1 / 0
    with pytest.raises(ZeroDivisionError):
        training.train()
    callback = PeaklineCallback()
    trainer(tmp_path, [callback]).train()
    assert callback.run is not failing.run
    assert len(callback.run.steps) == 4  # type: ignore[union-attr]
