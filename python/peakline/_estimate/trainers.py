"""Trainers that evaluate after so many batches: Lightning's and Hugging Face's.

They count to an epoch's length, or to 500 steps, and a shortened epoch comes to neither. So they
are told that it is time, once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from peakline._estimate.epochs import Epochs
from peakline._imports import acting_on
from peakline._patches import Patches

_LIGHTNING = tuple(
    f"{package}.loops.training_epoch_loop" for package in ("lightning.pytorch", "pytorch_lightning")
)
_HUGGING_FACE = "transformers.trainer_callback"


class Trainers:
    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._patches = Patches()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        actions = dict.fromkeys(_LIGHTNING, self._patch_lightning)
        actions[_HUGGING_FACE] = self._patch_hugging_face
        try:
            with acting_on(actions):
                yield
        finally:
            self._patches.restore()

    def _patch_lightning(self, module: ModuleType) -> None:
        loop: Any = getattr(module, "_TrainingEpochLoop", None)
        should_check: Any = getattr(loop, "_should_check_val_fx", None)
        if should_check is None:
            return

        @functools.wraps(should_check)
        def should_check_or_is_due(loop: Any, *args: Any, **kwargs: Any) -> bool:
            due = bool(should_check(loop, *args, **kwargs))
            return due or (self._epochs.awaits_evaluation() and loop.trainer.enable_validation)

        self._patches.set(loop, "_should_check_val_fx", should_check_or_is_due)

    def _patch_hugging_face(self, module: ModuleType) -> None:
        flow: Any = getattr(module, "DefaultFlowCallback", None)
        step_ended: Any = getattr(flow, "on_step_end", None)
        if step_ended is None:
            return

        @functools.wraps(step_ended)
        def evaluates_when_due(
            flow: Any, args: Any, state: Any, control: Any, **kwargs: Any
        ) -> Any:
            control = step_ended(flow, args, state, control, **kwargs)
            if self._epochs.awaits_evaluation() and args.eval_strategy == "steps":
                control.should_evaluate = True
            return control

        self._patches.set(flow, "on_step_end", evaluates_when_due)
