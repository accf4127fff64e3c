"""Ends a script after enough steps of the optimizer that is seen first."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


class EnoughSteps(BaseException):
    """Raised inside the script. No Exception: a script's own handlers must not swallow it."""


class StepCount:
    """How many steps the first optimizer has done."""

    def __init__(self, limit: int) -> None:
        self.done = 0
        self._limit = limit
        self._first: weakref.ref[Optimizer] | None = None

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._first is None:
            self._first = weakref.ref(optimizer)
        if self._first() is not optimizer:
            return
        self.done += 1
        if self.done >= self._limit:
            raise EnoughSteps


@contextlib.contextmanager
def counted_steps(limit: int) -> Iterator[StepCount]:
    count = StepCount(limit)
    handle = register_optimizer_step_post_hook(count.after_step)
    try:
        yield count
    finally:
        handle.remove()
