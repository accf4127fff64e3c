"""Metrics for Prometheus: asked for when they are scraped, or written to a file.

REGISTRY.register(RunCollector(run))               # beside the job's own metrics
serve(run, port=9400)                              # on a port of one's own
run.on_step(Textfile("peakline.prom"), every=100)  # for the node exporter's textfile collector
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import GaugeMetricFamily

from peakline.integrations import _gauges
from peakline.integrations.scalars import rank
from peakline.run import Run


class RunCollector:
    """Give it to a registry of prometheus_client; labels are rank, device and category."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rank = str(rank())

    def collect(self) -> Iterator[Any]:
        families = {gauge: _family(gauge) for gauge in _gauges.ALL}
        for gauge, labels, value in _gauges.values(self._run):
            families[gauge].add_metric([self._rank, *labels.values()], value)
        yield from families.values()

    def describe(self) -> Iterator[Any]:
        """Registering asks for nothing: names are known without a run."""
        yield from (_family(gauge) for gauge in _gauges.ALL)


def serve(run: Run, port: int, address: str = "127.0.0.1") -> Any:
    """Answers scrapes at `address`:`port` until the server that it gives is shut down."""
    server, _ = start_http_server(port, address, _registry(run))
    return server


class Textfile:
    """Writes the metrics to `path`, whole or not at all. Each rank needs a path of its own."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __call__(self, run: Run) -> None:
        write_to_textfile(self._path, _registry(run))


def _registry(run: Run) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(RunCollector(run))
    return registry


def _family(gauge: _gauges.Gauge) -> GaugeMetricFamily:
    name = f"peakline_{gauge.name}" + (f"_{gauge.unit}" if gauge.unit else "")
    labels = ["rank", "device", *(["category"] if gauge.of_category else [])]
    return GaugeMetricFamily(name, gauge.help, labels=labels)
