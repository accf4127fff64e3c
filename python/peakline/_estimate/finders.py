"""Scripts that look for their batch size by themselves: accelerate's and Lightning's finders.

Memory runs out on a virtual GPU as it does on a real one, so they find what they would find there.
Here it is seen to that their trials are no training steps, and that the answer names the batch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from peakline._imports import acting_on
from peakline._patches import Patches
from peakline._steps import Steps

_FIND = "find_executable_batch_size"
_ACCELERATE = ("accelerate.utils.memory", "accelerate.utils", "accelerate")
_LIGHTNING = tuple(
    f"{package}.{module}"
    for package in ("lightning.pytorch", "pytorch_lightning")
    for module in ("tuner.batch_size_scaling", "callbacks.batch_size_finder")
)


class Finders:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._patches = Patches()
        self._found: dict[str, int | None] = {}  # None: none yet

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        actions = dict.fromkeys(_ACCELERATE, self._patch_accelerate)
        actions |= dict.fromkeys(_LIGHTNING, self._patch_lightning)
        try:
            with acting_on(actions):
                yield
        finally:
            self._patches.restore()

    @property
    def searched(self) -> bool:
        return bool(self._found)

    def sentences(self) -> list[str]:
        return [
            f"{who} found no batch that works"
            if batch is None
            else f"{who} went on with a batch of {batch}"
            for who, batch in self._found.items()
        ]

    def _patch_accelerate(self, module: ModuleType) -> None:
        find: Any = getattr(module, _FIND, None)
        if find is None or hasattr(find, "__wrapped__"):
            return

        @functools.wraps(find)
        def finding(function: Any = None, *args: Any, **kwargs: Any) -> Any:
            if function is None:
                return find(None, *args, **kwargs)
            return find(self._noting(function), *args, **kwargs)

        self._patches.set(module, _FIND, finding)

    def _noting(self, function: Any) -> Any:
        @functools.wraps(function)
        def noting(batch: int, *args: Any, **kwargs: Any) -> Any:
            self._found[_FIND] = batch
            try:
                return function(batch, *args, **kwargs)
            except Exception:
                self._found[_FIND] = None  # too large, or the script fails
                raise

        return noting

    def _patch_lightning(self, module: ModuleType) -> None:
        name = "_scale_batch_size"
        scale: Any = getattr(module, name, None)
        if scale is None or hasattr(scale, "__wrapped__"):
            return

        @functools.wraps(scale)
        def scaling(*args: Any, **kwargs: Any) -> Any:
            with self._steps.not_counted():
                found = scale(*args, **kwargs)
            if isinstance(found, int):
                self._found["Lightning's batch-size finder"] = found
            return found

        self._patches.set(module, name, scaling)
