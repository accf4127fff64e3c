"""What a run that still goes on can say, at the cost of reading what is new."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from peakline import _C


@dataclass(frozen=True)
class Live:
    """A device's memory up to now. What it reserves is None where that cannot be seen."""

    device: str
    step: int  # steps completed
    allocated: int  # now
    reserved: int | None
    peak_allocated: int
    peak_reserved: int | None
    step_peak: int  # the highest within the last whole step; 0 before it
    by_category: dict[str, int]  # at the peak, as far as it is known by now; sums to it

    @property
    def fragmentation(self) -> float | None:
        """The share of the highest reserved bytes that was more than the highest allocated."""
        if not self.peak_reserved:
            return None
        return max(self.peak_reserved - self.peak_allocated, 0) / self.peak_reserved


class LiveReader:
    """Follows one recording. Threads may ask at the same time: a metrics server has its own."""

    def __init__(self, spool: _C.Spool, sync: Callable[[], object]) -> None:
        self._run = _C.LiveRun(spool)
        self._sync = sync
        self._lock = threading.Lock()

    def now(self) -> list[Live]:
        self._sync()
        with self._lock:
            step, devices = self._run.now()
        return [Live(step=step, **device) for device in devices]
