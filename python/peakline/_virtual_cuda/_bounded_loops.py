"""Loops that come to an end by themselves, however often they ask for values nobody can know.

A line that keeps asking may wait for a value that does not come. One that asks once for each batch
of a DataLoader, or for each token that is generated up to a length, does not.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch.utils.data import dataloader

from peakline._imports import acting_on
from peakline._patches import Patches

_CRITERIA = "transformers.generation.stopping_criteria"


def install(patches: Patches, went_on: Callable[[], None]) -> None:
    """Calls `went_on` with every batch and every token of such a loop."""
    batches: Any = dataloader._BaseDataLoaderIter
    patches.set(batches, "__next__", _next_batch(batches.__next__, went_on))

    def watch(module: ModuleType) -> None:
        criteria: Any = module.StoppingCriteriaList
        patches.set(criteria, "__call__", _next_token(criteria.__call__, went_on))

    watching = contextlib.ExitStack()
    watching.enter_context(acting_on({_CRITERIA: watch}))
    patches.on_restore(watching.close)


def _next_batch(original: Callable[..., Any], went_on: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        batch = original(self)
        if _is_counted(self):
            went_on()
        return batch

    return next_batch


def _is_counted(batches: Any) -> bool:
    """Whether their number is known; others may go on for ever."""
    try:
        return len(batches) > 0
    except (TypeError, NotImplementedError):
        return False


def _next_token(original: Callable[..., Any], went_on: Callable[[], None]) -> Callable[..., Any]:
    """Called by `generate` after each token, or several where an assistant proposes them."""

    @functools.wraps(original)
    def next_token(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "max_length", None) is not None:
            went_on()
        return original(self, *args, **kwargs)

    return next_token
