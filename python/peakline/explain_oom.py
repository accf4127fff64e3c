"""`peakline.explain_oom`: a page about the moment memory ran out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import torch

from peakline import _checks, _oom_page
from peakline._ending import caused_by
from peakline._oom_facts import OomFacts, gather
from peakline.run import Run
from peakline.track import Tracker, current_run


class explain_oom:
    """When memory runs out in the block, `path` explains it: a page to open in a browser.

    It says what was asked for and by which line, what was alive by line, module and category, who
    holds the largest tensors, how fragmented the memory was, and what would have helped, if
    anything: settings of the allocator and an emptied cache, each tried on the recording before it
    is said. The error goes on as it would without this.

    It looks at the run that is being tracked, or on a virtual GPU; where there is none it tracks
    the block itself, as `track()` does.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(_checks.path(path, "explain_oom(path)"))
        # What else would have helped, where somebody can try it.
        self._more_advice: Callable[[OomFacts], list[str]] = lambda facts: []
        self._tracker: Tracker | None = None
        self._run: Run | None = None

    def __enter__(self) -> explain_oom:
        self._run = current_run()
        if self._run is None:
            self._tracker = Tracker([], [], info={"command": " ".join(sys.argv)})
            self._run = self._tracker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None and caused_by(error, torch.OutOfMemoryError):
                self._explain(error)
        finally:
            if self._tracker is not None:
                self._tracker.stop()

    def _explain(self, error: BaseException) -> None:
        assert self._run is not None
        try:
            if self._tracker is not None:
                self._tracker.label_alive()
            facts = gather(self._run, error)
            facts.advice.extend(self._more_advice(facts))
            page = _oom_page.render(facts)
            self._path.write_text(page, encoding="utf-8")
            said = f"{self._path} explains it"
        except ValueError as why:
            said = f"{self._path} is not written: {why}"
        except Exception as failure:  # the program's own error is what matters
            said = f"{self._path} is not written, for an error of peakline's own: {failure!r}"
        print(f"peakline: memory ran out; {said}", file=sys.stderr)
