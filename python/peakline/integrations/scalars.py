"""A run's memory as numbers with names, which is what loggers of experiments take."""

from __future__ import annotations

import os

import torch

from peakline.run import Run


def scalars(run: Run, prefix: str = "peakline/", categories: bool = True) -> dict[str, float]:
    """Bytes of the device that the run is about, up to now; empty as long as it holds nothing."""
    devices = run.live_devices()
    if not devices:
        return {}
    live = devices[0]
    found: dict[str, float | None] = {
        "allocated": live.allocated,
        "step_peak": live.step_peak,
        "peak_allocated": live.peak_allocated,
        "reserved": live.reserved,
        "peak_reserved": live.peak_reserved,
        "fragmentation": live.fragmentation,
    }
    if categories:
        found |= {f"at_peak/{name}": size for name, size in live.by_category.items()}
    return {prefix + name: value for name, value in found.items() if value is not None}


def rank() -> int:
    """This process's place in its job, 0 when it is alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))
