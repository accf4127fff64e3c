"""Accelerate: a tracker that keeps the recording, and the numbers for the job's other trackers.

accelerator = Accelerator(log_with=PeaklineTracker("run.peak"))
accelerator.init_trackers("project")     # from here on it is tracked ...
accelerator.end_training()               # ... until here

with track(accelerator, model, optimizer, every=10) as run:   # numbers for all its trackers
    ...
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from accelerate.tracking import GeneralTracker

from peakline.integrations._tracking import Report, Tracking
from peakline.integrations.scalars import scalars
from peakline.run import Run


class PeaklineTracker(GeneralTracker):  # type: ignore[misc]
    """Tracks from `init_trackers` to `end_training`, on every rank. `path` keeps the recording,
    NAME.RANK.peak where there are several; `reports` are called after every `every` steps."""

    name = "peakline"
    requires_logging_directory = False
    main_process_only = False

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        every: int = 1,
        reports: Iterable[Report] = (),
    ) -> None:
        self._tracking = Tracking(path, every, reports)
        super().__init__()

    @property
    def tracker(self) -> Run | None:
        return self._tracking.run

    @property
    def run(self) -> Run | None:
        """The run; None before `init_trackers`."""
        return self._tracking.run

    def start(self) -> None:
        self._tracking.start()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """A recording has no place for hyperparameters."""

    def log(self, values: dict[str, Any], step: int | None = None, **given: Any) -> None:
        """What the program logs is for its other trackers."""

    def finish(self) -> None:
        self._tracking.stop()


@contextlib.contextmanager
def track(
    accelerator: Any,
    model: Any = None,
    optimizer: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    every: int = 10,
) -> Iterator[Run]:
    """Tracks the block; every `every` steps its numbers go to the trackers of `accelerator`."""

    def report(run: Run) -> None:
        numbers = scalars(run)
        if numbers:
            accelerator.log(numbers, step=run.live().step)

    tracking = Tracking(path, every, [report])
    run = tracking.start(model, optimizer)
    try:
        yield run
    finally:
        tracking.stop()
