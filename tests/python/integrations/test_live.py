"""What a run says while it goes on."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import peakline
from peakline.integrations.logs import LogLine


class Training:
    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, batch: int = 32) -> None:
        self.model(torch.randn(batch, 64, device=self.device)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def test_live_numbers_are_those_of_the_finished_run() -> None:
    training = Training()
    with peakline.track(training.model, training.optimizer) as run:
        for _ in range(4):
            training.step()
        live = run.live()
        assert live.step == 4
        assert live.step_peak == run.steps[-1].peak_allocated
    peak = run.peak()
    assert live.peak_allocated == peak.bytes
    assert live.by_category == {name: size for name, size in peak.by_category.items() if size}
    assert live.reserved is None
    assert live.fragmentation is None


def test_live_numbers_of_a_virtual_gpu_are_torchs() -> None:
    with peakline.virtual_gpu("h200") as run:
        training = Training("cuda")
        for _ in range(3):
            training.step()
        live = run.live("cuda:0")
        assert live.allocated == torch.cuda.memory_allocated()
        assert live.reserved == torch.cuda.memory_reserved()
        assert live.peak_allocated == torch.cuda.max_memory_allocated()
        assert live.peak_reserved == torch.cuda.max_memory_reserved()
        over = torch.cuda.max_memory_reserved() - torch.cuda.max_memory_allocated()
        assert live.fragmentation == over / torch.cuda.max_memory_reserved()
        assert sum(live.by_category.values()) == live.peak_allocated


def test_a_later_and_higher_peak_is_seen() -> None:
    training = Training()
    with peakline.track(training.model) as run:
        training.step()
        before = run.live()
        training.step(batch=4096)
        assert run.live().peak_allocated > before.peak_allocated
        training.step()
        assert run.live().step_peak < run.live().peak_allocated


def test_another_thread_may_ask() -> None:
    training = Training()
    found: list[int] = []
    over = threading.Event()
    with peakline.track(training.model) as run:
        training.step()

        def ask() -> None:
            while not over.is_set():
                found.append(run.live().step)

        thread = threading.Thread(target=ask)
        thread.start()
        for _ in range(20):
            training.step()
        over.set()
        thread.join()
        assert run.live().step == 21
    assert found == sorted(found)


def test_nothing_allocated_yet_is_said_and_so_is_an_unknown_device() -> None:
    with peakline.track() as run:
        with pytest.raises(ValueError, match="nothing was allocated in this run yet"):
            run.live()
        kept = torch.ones(64)
        with pytest.raises(ValueError, match=r"on 'cuda:3' yet; ask for one of: cpu"):
            run.live("cuda:3")
        del kept


def test_a_report_is_called_every_so_many_steps_until_the_run_ends() -> None:
    training = Training()
    seen: list[int] = []
    with peakline.track(training.model) as run:
        run.on_step(lambda run: seen.append(run.live().step), every=2)
        for _ in range(5):
            training.step()
    training.step()
    assert seen == [2, 4]
    with pytest.raises(ValueError, match="this run is over"):
        run.on_step(print)
    with pytest.raises(ValueError, match="every=0"):
        run.on_step(print, every=0)


def test_a_report_that_fails_is_dropped_with_a_warning_and_training_goes_on() -> None:
    training = Training()
    calls: list[int] = []

    def report(run: peakline.Run) -> None:
        calls.append(1)
        raise OSError("disk full")

    with peakline.track(training.model) as run:
        run.on_step(report)
        with pytest.warns(UserWarning, match="disk full"):
            training.step()
        training.step()
        training.step()
    assert calls == [1]
    assert len(run.steps) == 3


def test_logging_says_peak_reserved_and_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    with peakline.virtual_gpu() as run, caplog.at_level("INFO", logger="peakline"):
        run.on_step(LogLine(), every=2)
        training = Training("cuda")
        for _ in range(4):
            training.step()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in lines] == ["step 2", "step 4"]
    assert "on cuda:0" in lines[0]
    assert "reserved" in lines[0]
    assert "Workspace" in lines[0]


def test_importing_peakline_imports_none_of_the_libraries() -> None:
    libraries = "transformers lightning accelerate tensorboard wandb prometheus_client"
    code = (
        "import sys, peakline, peakline.integrations\n"
        f"print([m for m in '{libraries} opentelemetry IPython'.split() if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
