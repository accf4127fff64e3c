"""Lightning's `Trainer`, tracked from setup to teardown, whichever of fit, validate, test it runs.

callback = PeaklineCallback("run.peak")
Trainer(..., callbacks=[callback]).fit(module)
print(callback.run)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from peakline.integrations._tracking import Report, Tracking
from peakline.integrations.scalars import scalars
from peakline.run import Run

# A program uses one of the two names of the library, and its callbacks must be of the same one.
if TYPE_CHECKING or "pytorch_lightning" not in sys.modules or "lightning.pytorch" in sys.modules:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback


class PeaklineCallback(Callback):  # type: ignore[misc]
    """`path` keeps the recording; `reports` are called after every `every` steps of the optimizer.

    The Trainer's loggers get peakline's numbers as often as it logs, unless `log` is False.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        every: int = 1,
        reports: Iterable[Report] = (),
        log: bool = True,
    ) -> None:
        self._path, self._every, self._reports, self._log = path, every, list(reports), log
        self._tracking: Tracking | None = None
        self._logged = 0

    @property
    def run(self) -> Run | None:
        """What the Trainer did last, or does; None before."""
        return None if self._tracking is None else self._tracking.run

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self._tracking is not None:
            self._tracking.stop()
        self._tracking = Tracking(self._path, self._every, self._reports)
        self._tracking.start(pl_module)
        self._logged = 0

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if not self._log or self.run is None or not trainer.loggers or step == self._logged:
            return
        if step % max(trainer.log_every_n_steps, 1) == 0:
            self._logged = step
            numbers = scalars(self.run)
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._tracking is not None:
            self._tracking.stop()
