"""One training of a library that calls back: tracked, or told about where it is tracked already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from peakline.integrations.scalars import rank
from peakline.run import Run
from peakline.track import current_run, track

Report = Callable[[Run], object]


class Tracking:
    """From start() to stop(). Inside a virtual GPU, or a `peakline.track` of the user's own, it is
    that run which is asked: there is one at a time."""

    _abandoned: Tracking | None = None  # its training failed before it could stop

    def __init__(
        self, path: str | os.PathLike[str] | None, every: int, reports: Iterable[Report]
    ) -> None:
        if every < 1:
            raise ValueError(f"every={every}: say after how many steps, 1 or more")
        self._path = path
        self._every = every
        self._reports = list(reports)
        self._own: track | None = None
        self.run: Run | None = None

    def start(self, model: nn.Module | None = None, optimizer: Any = None) -> Run:
        if Tracking._abandoned is not None:
            Tracking._abandoned.stop()
        run = current_run()
        if run is None:
            self._own = track(model, optimizer)
            run = self._own.start()
            Tracking._abandoned = self
        self.run = run
        for report in self._reports:
            run.on_step(report, self._every)
        return run

    def stop(self) -> None:
        """Writes the recording, where a path was given. May be called again."""
        own, self._own = self._own, None
        if own is not None:
            own.stop()
            Tracking._abandoned = None
        path, self._path = self._path, None
        if self.run is not None and path is not None:
            self.run.save(of_this_rank(path))


def of_this_rank(path: str | os.PathLike[str]) -> str:
    """NAME.peak becomes NAME.RANK.peak in a job of several ranks."""
    name = os.fspath(path)
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return name
    stem, ending = os.path.splitext(name)
    return f"{stem}.{rank()}{ending}"
