"""Numbers for loggers and monitoring, read back with the libraries that they are for."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline


def train(run: peakline.Run, steps: int = 4) -> None:
    model = nn.Linear(512, 512, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.randn(64, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_tensorboard_has_a_scalar_for_each_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    from peakline.integrations.tensorboard import Scalars

    with SummaryWriter(str(tmp_path)) as writer, peakline.virtual_gpu() as run:
        run.on_step(Scalars(writer), every=2)
        train(run)
    events = EventAccumulator(str(tmp_path)).Reload()
    peaks = events.Scalars("peakline/peak_allocated")
    assert [point.step for point in peaks] == [2, 4]
    assert peaks[-1].value == pytest.approx(run.peak().bytes, rel=1e-6)  # float32
    assert events.Scalars("peakline/peak_reserved")[-1].value == pytest.approx(
        run.peak().reserved, rel=1e-6
    )
    assert "peakline/at_peak/Optstate" in events.Tags()["scalars"]


def test_weights_and_biases_gets_them_with_the_programs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: it is large")
    from peakline.integrations.wandb import Scalars

    monkeypatch.setenv("WANDB_MODE", "offline")
    logger = wandb.init(project="peakline", dir=str(tmp_path))
    with peakline.virtual_gpu() as run:
        run.on_step(Scalars(logger))
        run.on_step(lambda run: logger.log({"loss": 1.0}))
        train(run)
    summary = dict(logger.summary)
    logger.finish()
    assert summary["_step"] == 3  # the program's own four, and none of peakline's
    assert summary["peakline/peak_allocated"] == run.peak().bytes
    assert summary["peakline/peak_reserved"] == run.peak().reserved


def test_wandbs_log_is_called_without_making_a_step() -> None:
    from peakline.integrations.wandb import Scalars

    calls: list[tuple[dict[str, float], bool]] = []

    class Logger:
        def log(self, values: dict[str, float], commit: bool) -> None:
            calls.append((values, commit))

    with peakline.virtual_gpu() as run:
        run.on_step(Scalars(Logger()), every=4)
        train(run)
    assert [(values["peakline/peak_allocated"], commit) for values, commit in calls] == [
        (run.peak().bytes, False)
    ]


def test_prometheus_scrapes_peak_reserved_and_categories_by_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="it is not installed")
    from peakline.integrations.prometheus import RunCollector

    monkeypatch.setenv("RANK", "3")
    registry = prometheus.CollectorRegistry()
    with peakline.virtual_gpu() as run:
        registry.register(RunCollector(run))
        train(run)
        where = {"rank": "3", "device": "cuda:0"}
        for name, expected in (
            ("peakline_peak_allocated_bytes", torch.cuda.max_memory_allocated()),
            ("peakline_reserved_bytes", torch.cuda.memory_reserved()),
            ("peakline_peak_reserved_bytes", torch.cuda.max_memory_reserved()),
            ("peakline_fragmentation", run.live().fragmentation),
            ("peakline_steps", 4),
        ):
            assert registry.get_sample_value(name, where) == expected, name
        category = {**where, "category": "Parameter"}
        at_peak = registry.get_sample_value("peakline_at_peak_bytes", category)
        assert at_peak == run.live().by_category["Parameter"]


def test_prometheus_file_is_written_whole(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="it is not installed")
    from prometheus_client.parser import text_string_to_metric_families

    from peakline.integrations.prometheus import Textfile

    with peakline.virtual_gpu() as run:
        run.on_step(Textfile(tmp_path / "peakline.prom"), every=4)
        train(run)
    text = (tmp_path / "peakline.prom").read_text()
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    peaks = {
        sample.labels["device"]: sample.value for sample in found["peakline_peak_allocated_bytes"]
    }
    assert peaks["cuda:0"] == run.peak("cuda:0").bytes
    assert [path.name for path in tmp_path.iterdir()] == ["peakline.prom"]


def test_prometheus_opens_the_port_that_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client", reason="it is not installed")
    from peakline.integrations.prometheus import serve

    monkeypatch.undo()  # this one is about a port
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with peakline.virtual_gpu() as run:
        train(run)
        server = serve(run, port)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                text = answer.read().decode()
        finally:
            server.shutdown()
            server.server_close()
    assert 'peakline_steps{device="cuda:0",rank="0"} 4.0' in text


def test_opentelemetrys_reader_collects_the_same() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from peakline.integrations.opentelemetry import observe

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with peakline.virtual_gpu() as run:
        observe(run, provider.get_meter("training"))
        train(run)
        points: dict[tuple[str, Any], float] = {}
        data = reader.get_metrics_data()
        assert data is not None
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                attributes = point.attributes
                assert attributes["rank"] == 0
                if attributes["device"] == "cuda:0":
                    points[metric.name, attributes.get("category")] = point.value
        live = run.live()
    provider.shutdown()
    assert points["peakline.memory.peak_allocated", None] == live.peak_allocated
    assert points["peakline.memory.peak_reserved", None] == live.peak_reserved
    assert points["peakline.memory.fragmentation", None] == live.fragmentation
    for category, size in live.by_category.items():
        assert points["peakline.memory.at_peak", category] == size
