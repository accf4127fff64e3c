"""Scalars for TensorBoard.

with peakline.track(model, optimizer) as run:
    run.on_step(Scalars(SummaryWriter("logs")), every=10)
"""

from __future__ import annotations

from typing import Any

from peakline.integrations.scalars import scalars
from peakline.run import Run


class Scalars:
    """`writer` is a `torch.utils.tensorboard.SummaryWriter`, or has its `add_scalar`."""

    def __init__(self, writer: Any, prefix: str = "peakline/") -> None:
        self._writer = writer
        self._prefix = prefix

    def __call__(self, run: Run) -> None:
        for live in run.live_devices()[:1]:
            for name, value in scalars(run, self._prefix).items():
                self._writer.add_scalar(name, value, live.step)
