"""The metrics of a run for those who watch long jobs: one list for Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from peakline._live import Live
from peakline.run import Run


@dataclass(frozen=True)
class Gauge:
    name: str
    help: str
    unit: str  # "bytes", or "" for a share or a count
    of_category: bool = False


ALLOCATED = Gauge("allocated", "What is allocated now.", "bytes")
PEAK_ALLOCATED = Gauge("peak_allocated", "The highest that was allocated.", "bytes")
STEP_PEAK = Gauge("step_peak_allocated", "The highest within the last whole step.", "bytes")
RESERVED = Gauge("reserved", "What the allocator reserves now.", "bytes")
PEAK_RESERVED = Gauge("peak_reserved", "The highest that the allocator reserved.", "bytes")
FRAGMENTATION = Gauge(
    "fragmentation", "The share of the peak of reserved bytes above the peak of allocated ones.", ""
)
AT_PEAK = Gauge("at_peak", "What was alive at the peak, by category.", "bytes", of_category=True)
STEPS = Gauge("steps", "Steps completed.", "")
ALL = (ALLOCATED, PEAK_ALLOCATED, STEP_PEAK, RESERVED, PEAK_RESERVED, FRAGMENTATION, AT_PEAK, STEPS)


def values(run: Run) -> Iterator[tuple[Gauge, dict[str, str], float]]:
    """Every metric of every device, with its device and, where there is one, its category."""
    for live in run.live_devices():
        device = {"device": live.device}
        for gauge, value in _of(live).items():
            if value is not None:
                yield gauge, device, value
        for category, size in live.by_category.items():
            yield AT_PEAK, {**device, "category": category}, size


def _of(live: Live) -> dict[Gauge, float | None]:
    return {
        ALLOCATED: live.allocated,
        PEAK_ALLOCATED: live.peak_allocated,
        STEP_PEAK: live.step_peak,
        RESERVED: live.reserved,
        PEAK_RESERVED: live.peak_reserved,
        FRAGMENTATION: live.fragmentation,
        STEPS: live.step,
    }
