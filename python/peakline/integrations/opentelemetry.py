"""Metrics for OpenTelemetry: observable gauges on the user's meter, which knows where they go.

observe(run, metrics.get_meter("training"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from peakline.integrations import _gauges
from peakline.integrations.scalars import rank
from peakline.run import Run


def observe(run: Run, meter: Meter) -> list[Any]:
    """Makes `peakline.memory.…`; they are asked when the user's reader collects."""
    own = {"rank": rank()}
    return [
        meter.create_observable_gauge(
            f"peakline.memory.{gauge.name}",
            callbacks=[_callback(run, gauge, own)],
            unit="By" if gauge.unit else "1",
            description=gauge.help,
        )
        for gauge in _gauges.ALL
    ]


def _callback(
    run: Run, gauge: _gauges.Gauge, own: dict[str, int]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observations(options: CallbackOptions) -> Iterable[Observation]:
        for found, attributes, value in _gauges.values(run):
            if found is gauge:
                yield Observation(value, {**own, **attributes})

    return observations
