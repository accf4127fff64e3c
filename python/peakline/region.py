"""`peakline.region`: a name for a part of the program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from peakline.track import Tracker, running

P = ParamSpec("P")
R = TypeVar("R")


class region:
    """What the block allocates is shown under `name`, and so is the highest total while it runs.

    Regions may lie inside one another, and belong to their thread. Outside of `track()` and of a
    virtual GPU this does nothing. As a decorator it names all calls of a function.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"region({name!r}): give it a name")
        self._name = name
        self._told: list[list[Tracker]] = []

    def __enter__(self) -> region:
        told = running()
        for tracker in told:
            tracker.region_begin(self._name)
        self._told.append(told)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for tracker in self._told.pop():
            tracker.region_end()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def named(*args: P.args, **kwargs: P.kwargs) -> R:
            with region(self._name):
                return function(*args, **kwargs)

        return named
