"""Scalars for Weights & Biases, in the run that the user began.

with peakline.track(model, optimizer) as run:
    run.on_step(Scalars(wandb.init(...)), every=10)
"""

from __future__ import annotations

from typing import Any

from peakline.integrations.scalars import scalars
from peakline.run import Run


class Scalars:
    """`wandb_run` is what `wandb.init` gave. The numbers go with the program's own next `log`, so
    that its steps stay its own; `commit=True` makes a step of them, where the program logs nothing.
    """

    def __init__(self, wandb_run: Any, prefix: str = "peakline/", commit: bool = False) -> None:
        self._run = wandb_run
        self._prefix = prefix
        self._commit = commit

    def __call__(self, run: Run) -> None:
        values = scalars(run, self._prefix)
        if values:
            self._run.log(values, commit=self._commit)
