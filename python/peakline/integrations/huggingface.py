"""Hugging Face's `Trainer`, tracked from the beginning of training to its end.

callback = PeaklineCallback("run.peak")
trainer = Trainer(..., callbacks=[callback])
trainer.train()
print(callback.run)
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from transformers import TrainerCallback

from peakline.integrations._tracking import Report, Tracking
from peakline.integrations.scalars import scalars
from peakline.run import Run


class PeaklineCallback(TrainerCallback):  # type: ignore[misc]
    """`path` keeps the recording; `reports` are called after every `every` steps of the optimizer.

    Evaluation during training is part of the run. What the Trainer logs gets peakline's numbers
    beside its own; so that also the callbacks of `report_to` see them, use `attach(trainer)`.
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

    @property
    def run(self) -> Run | None:
        """What the last training was, or is; None before the first."""
        return None if self._tracking is None else self._tracking.run

    def attach(self, trainer: Any) -> PeaklineCallback:
        """Adds itself before the Trainer's other callbacks."""
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._tracking = Tracking(self._path, self._every, self._reports)
        self._tracking.start(given.get("model"), given.get("optimizer"))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        if not self._log or self.run is None or logs is None:
            return
        numbers = scalars(self.run, "peakline_", categories=False)
        logs.update(numbers)
        if state.log_history:
            state.log_history[-1].update(numbers)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self._tracking is not None:
            self._tracking.stop()
