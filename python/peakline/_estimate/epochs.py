"""Ends epochs early, so that a short estimate also sees what follows a training epoch."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torchs

from peakline._ending import EpochCut

_FEW = 3  # batches of an evaluation: its first, and what the second and third find left of others


@dataclass
class _Pass:
    """One way through a DataLoader."""

    begun_after: int  # steps
    most: int | None  # batches that it may give; None: all of them
    given: int = 0
    last_given_after: int = -1  # steps
    has_ended: bool = False
    was_cut: bool = False  # ended before its own end
    trained: bool = False  # a step followed one of its batches
    without_gradients: bool = False  # its last batch was asked for where nothing can be trained


class Epochs:
    """The DataLoaders of a script, and how many batches each may still give."""

    def __init__(self, steps_done: Callable[[], int]) -> None:
        self._steps_done = steps_done
        self._passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        self._all: list[_Pass] = []
        self._most: int | None = None
        self._shortened_after = 0  # steps

    def step_ended(self) -> None:
        """Notes which passes this step's batches came from."""
        for one in self._asked_for_this_step():
            one.trained |= not one.has_ended

    def _asked_for_this_step(self) -> list[_Pass]:
        before = self._steps_done() - 1
        return [
            one for one in self._all if one.last_given_after >= before and not one.without_gradients
        ]

    def shorten(self) -> bool:
        """Ends the passes that feed training, and gives later ones a few batches. False: no
        DataLoader feeds training, so there is nothing to end."""
        feeding = self._asked_for_this_step()
        for one in feeding:
            one.most = one.given
        self._shortened_after = steps = self._steps_done()
        per_step = max((-(-one.given // steps) for one in feeding), default=0)
        self._most = max(_FEW, per_step + 1)  # enough to come to the next step
        return bool(feeding)

    def next_has_begun(self) -> bool:
        """Whether the last step's batches came from a pass that began after the shortened ones."""
        asked = self._asked_for_this_step()
        return any(one.trained and one.begun_after >= self._shortened_after for one in asked)

    def any_has_ended(self) -> bool:
        """A pass that fed training has come to its end, shortened or not."""
        return any(one.has_ended and one.trained for one in self._all)

    def training_was_cut(self) -> bool:
        return any(one.was_cut and one.trained for one in self._all)

    def training_was_just_cut(self) -> bool:
        """No step has come since."""
        return self.training_was_cut() and self._steps_done() == self._shortened_after

    def evaluation_was_cut(self) -> bool:
        return any(one.was_cut and not one.trained for one in self._all)

    def evaluations(self) -> int:
        """Passes after the first step that no step followed."""
        return sum(one.begun_after > 0 and one.given > 0 and not one.trained for one in self._all)

    def awaits_evaluation(self) -> bool:
        """The epoch has been shortened, and no evaluation was seen yet."""
        return self._most is not None and not self.evaluations()

    def begin(self, batches: Any) -> None:
        self._passes[batches] = one = _Pass(self._steps_done(), self._most)
        self._all.append(one)

    def next(self, batches: Any, take: Callable[[Any], Any]) -> Any:
        if batches not in self._passes:  # it began before anybody watched
            self.begin(batches)
        one = self._passes[batches]
        if one.most is not None and one.given >= one.most:
            one.has_ended = one.was_cut = True
            _end_workers(batches)
            raise EpochCut
        try:
            batch = take(batches)
        except StopIteration:
            one.has_ended = True
            raise
        one.given += 1
        one.last_given_after = self._steps_done()
        one.without_gradients = not torch.is_grad_enabled()
        return batch


def _end_workers(batches: Any) -> None:
    """As when a DataLoader comes to its end."""
    if not getattr(batches, "_persistent_workers", True) and hasattr(batches, "_shutdown_workers"):
        batches._shutdown_workers()


@contextlib.contextmanager
def watched_loaders(epochs: Epochs) -> Iterator[None]:
    """`epochs` learns of every pass through a DataLoader of torch's, and may end it."""
    loader: Any = DataLoader
    begin = loader.__iter__

    @functools.wraps(begin)
    def begin_noted(self: Any) -> Any:
        batches = begin(self)
        epochs.begin(batches)
        return batches

    taken = {kind: kind.__next__ for kind in _kinds() if "__next__" in vars(kind)}
    loader.__iter__ = begin_noted
    for kind, take in taken.items():
        kind.__next__ = _noted(epochs, take)
    try:
        yield
    finally:
        loader.__iter__ = begin
        for kind, take in taken.items():
            kind.__next__ = take


def _noted(epochs: Epochs, take: Any) -> Any:
    @functools.wraps(take)
    def next_noted(self: Any) -> Any:
        return epochs.next(self, take)

    return next_noted


def _kinds() -> list[Any]:
    """torch's iterator over batches, and what others have derived from it."""
    found, fresh = [], [torchs._BaseDataLoaderIter]
    while fresh:
        kind: Any = fresh.pop()
        found.append(kind)
        fresh += kind.__subclasses__()
    return found
