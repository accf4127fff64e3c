"""An optimizer that steps for some of its parameters alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer


class Alone:
    """Shares state, settings and learning rates with `optimizer`."""

    def __init__(self, optimizer: Optimizer) -> None:
        # Not copy.copy: an optimizer goes over all of its state when it is copied.
        self._other: Any = object.__new__(type(optimizer))
        # The class's own step, without the hooks that are for whole steps.
        self._update: Any = getattr(type(optimizer).step, "__wrapped__", type(optimizer).step)

    def step(
        self, optimizer: Optimizer, group: dict[str, Any], parameters: Sequence[torch.Tensor]
    ) -> None:
        vars(self._other).update(vars(optimizer))
        vars(self._other).pop("step", None)  # a scheduler's, or a plan's
        self._other.param_groups = [{**group, "params": list(parameters)}]
        with torch.no_grad():
            self._update(self._other)
        vars(self._other).clear()
