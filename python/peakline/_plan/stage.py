"""Where levers act: a program that is about to run on a virtual GPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import nn

from peakline._patches import Patches
from peakline._plan.errors import LeverRefused

OnModel = Callable[[nn.Module], None]


class Stage:
    """`patches` are undone when the program has ended."""

    def __init__(self, patches: Patches) -> None:
        self.patches = patches
        self.refused = ""  # why a lever could not be applied, as a sentence
        self._on_model: list[OnModel] = []
        self._met: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def refuse(self, sentence: str) -> None:
        """Ends the program: it cannot have this change."""
        self.refused = self.refused or sentence
        raise LeverRefused(sentence)

    def on_model(self, act: OnModel) -> None:
        """`act` is called with every outermost module before it runs."""
        self._on_model.append(act)

    def model_met(self, model: nn.Module) -> None:
        if model in self._met:
            return
        self._met.add(model)
        for act in self._on_model:
            act(model)
