"""Attributes of torch that are replaced for a while, and put back exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MISSING = object()


class Patches:
    """Remembers what was there before each change. `restore()` undoes all, newest first.

    An attribute that an object merely inherited is deleted again, not copied into it.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._last: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def set_all(self, owner: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.set(owner, name, value)

    def set_where_present(self, owner: Any, name: str, value: Any) -> None:
        """For names that only some versions or builds of torch have."""
        if name in vars(owner):
            self.set(owner, name, value)

    def on_restore(self, action: Callable[[], None]) -> None:
        """Runs before anything is put back, newest first."""
        self._last.append(action)

    def restore(self) -> None:
        try:
            while self._last:
                self._last.pop()()
        finally:
            self._put_back()

    def _put_back(self) -> None:
        while self._undo:
            owner, name, old = self._undo.pop()
            if old is _MISSING:
                if name in vars(owner):
                    delattr(owner, name)
            else:
                setattr(owner, name, old)
