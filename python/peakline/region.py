"""`peakline.region`: a name for a part of the program."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from peakline.track import Tracker, running

P = ParamSpec("P")
R = TypeVar("R")


class _Entered:
    """A region that somebody is in, and who was told of it."""

    def __init__(self, of: region, name: str, told: list[Tracker]) -> None:
        self.of, self._name, self._told = of, name, told

    def begin(self) -> None:
        for tracker in self._told:
            tracker.region_begin(self._name)

    def end(self) -> None:
        for tracker in self._told:
            tracker.region_end()


_of_thread = threading.local()


def _open_here() -> list[_Entered]:
    """Those that this thread is in; the innermost last."""
    found: list[_Entered] | None = getattr(_of_thread, "entered", None)
    if found is None:
        found = _of_thread.entered = []
    return found


class region:
    """What the block allocates is shown under `name`, and so is the highest total while it runs.

    Regions may lie inside one another, and belong to their thread. Outside of `track()` and of a
    virtual GPU this does nothing. As a decorator it names all calls of a function.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"region({name!r}): give it a name")
        self._name = name

    def __enter__(self) -> region:
        entered = _Entered(self, self._name, running())
        _open_here().append(entered)
        entered.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        here = _open_here()
        ended = next((one for one in reversed(here) if one.of is self), None)
        if ended is None:  # a generator that another thread goes on with
            return
        # A generator that held it over a `yield` may end it before those that began meanwhile.
        inside = []
        while (last := here.pop()) is not ended:
            last.end()
            inside.append(last)
        ended.end()
        for one in reversed(inside):
            one.begin()
            here.append(one)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def named(*args: P.args, **kwargs: P.kwargs) -> R:
            with region(self._name):
                return function(*args, **kwargs)

        return named
