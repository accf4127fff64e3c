"""What goes wrong while a run is tracked ends the tracking, with one warning, and never the run."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from peakline import _C

P = ParamSpec("P")
T = TypeVar("T")


class Faults:
    """Of one tracked run. What tracking does inside the program's own calls is put into
    `with faults:`, and an exception there turns tracking off; the program's calls are not.

    `strict`: exceptions arise. On a virtual GPU there is nothing to save beside the answer.
    """

    def __init__(self, strict: bool = False) -> None:
        self.why = ""  # tracking is off, and this is why
        self._strict = strict
        self._session: _C.Session | None = None

    def bind(self, session: _C.Session) -> None:
        self._session = session
        session.on_fault(self.check)

    def check(self) -> None:
        """Tells of a recording that ended by itself: a full disk, a thread that is gone, …"""
        if not self.why and self._session is not None and (why := self._session.fault):
            self.why = why
            self._tell()

    def turn_off(self, error: BaseException) -> None:
        if self.why:
            return
        self.why = _in_words(
            error
        )  # first: the session calls check() back, and one telling is enough
        if self._session is not None:
            self._session.fail(self.why)
        self._tell()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._strict or not isinstance(error, Exception):
            return False  # also an interrupt, which is meant for the program
        self.turn_off(error)
        return True

    def guarded(self, hook: Callable[P, T]) -> Callable[P, T | None]:
        """The same inside `with faults:`."""

        @functools.wraps(hook)
        def inside(*args: P.args, **kwargs: P.kwargs) -> T | None:
            with self:
                return hook(*args, **kwargs)
            return None

        return inside

    def _tell(self) -> None:
        message = f"peakline has turned tracking off, and the run goes on without it: {self.why}"
        self.tell(message)

    @staticmethod
    def tell(message: str) -> None:
        """A warning, and never an error."""
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        except Exception:  # warnings are errors here (-W error), and this one must not end the run
            print(f"peakline: {message}", file=sys.stderr)


def _in_words(error: BaseException) -> str:
    said = str(error).partition("\n")[0]
    if isinstance(error, (OSError, ValueError)) and said:
        return said
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
