"""A line for `logging` after every so many steps.

with peakline.track(model, optimizer) as run:
    run.on_step(LogLine(), every=100)
"""

from __future__ import annotations

import logging

from peakline._C import format_size
from peakline._live import Live
from peakline.run import Run


class LogLine:
    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or logging.getLogger("peakline")
        self._level = level

    def __call__(self, run: Run) -> None:
        if self._logger.isEnabledFor(self._level):
            for live in run.live_devices()[:1]:
                self._logger.log(self._level, "%s", line(live))


def line(live: Live) -> str:
    """The same in words: "step 100: peak 3.2 GiB on cuda:0, …"."""
    words = f"step {live.step}: peak {format_size(live.peak_allocated)} on {live.device}"
    words += f", {format_size(live.step_peak)} in the last step"
    if live.peak_reserved is not None:
        words += f", {format_size(live.peak_reserved)} reserved"
        words += f" ({live.fragmentation or 0:.0%} more than allocated)"
    most = sorted(live.by_category.items(), key=lambda item: -item[1])[:3]
    return words + "; " + ", ".join(f"{name} {format_size(size)}" for name, size in most)
