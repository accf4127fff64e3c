"""Attributes of torch, and entries of dicts, that are replaced for a while and put back exactly."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

_MISSING = object()


@dataclass(eq=False)
class _Layer:
    """One replacement: what is there now, and what was there before it."""

    owner: Any
    name: str
    value: Any
    below: Any

    @property
    def key(self) -> tuple[int, str]:
        return id(self.owner), self.name


# All that are in place, by attribute, the newest last. A layer keeps its owner alive, so no other
# object can get its id.
_in_place: dict[tuple[int, str], list[_Layer]] = {}


class Patches:
    """Remembers what was there before each change. `restore()` undoes all, newest first.

    Only what is still its own is put back: where somebody else has patched the attribute since,
    theirs stays. Several of these may end in any order, and the last one leaves what was there
    before the first. An attribute that an object merely inherited is deleted again, not copied into
    it. Of a dict, and of os.environ, the entries are meant.
    """

    def __init__(self) -> None:
        self._layers: list[_Layer] = []
        self._last: list[Callable[[], None]] = []

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.restore()

    def set(self, owner: Any, name: str, value: Any) -> None:
        below = _read(owner, name)
        _write(owner, name, value)
        there = _read(owner, name)
        layer = _Layer(owner, name, value if there is _MISSING else there, below)
        self._layers.append(layer)
        _in_place.setdefault(layer.key, []).append(layer)

    def set_all(self, owner: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.set(owner, name, value)

    def set_where_present(self, owner: Any, name: str, value: Any) -> None:
        """For names that only some versions or builds of torch have."""
        if name in vars(owner):
            self.set(owner, name, value)

    def keep(self, context: AbstractContextManager[Any]) -> None:
        """Enters it now, and leaves it before anything is put back.

        What it sets in context variables is the thread's that enters it, and no other can leave it.
        """
        stack = ExitStack()
        stack.enter_context(context)
        thread, variables = threading.get_ident(), contextvars.copy_context()

        def leave() -> None:
            if threading.get_ident() == thread:
                stack.close()
            else:
                variables.run(stack.close)

        self.on_restore(leave)

    def on_restore(self, action: Callable[[], None]) -> None:
        """Runs before anything is put back, newest first."""
        self._last.append(action)

    def _run_last(self) -> None:
        """All of them, whatever one of them raises."""
        try:
            while self._last:
                self._last.pop()()
        finally:
            if self._last:
                self._run_last()

    def restore(self) -> None:
        try:
            self._run_last()
        finally:
            while self._layers:
                _take_out(self._layers.pop())


def _take_out(layer: _Layer) -> None:
    layers = _in_place[layer.key]
    place = layers.index(layer)
    above = layers[place + 1 :]
    layers.remove(layer)
    if not layers:
        del _in_place[layer.key]
    if above:  # a later one of ours goes on, and ends with what was below this one
        if _is_same(above[0].below, layer.value):
            above[0].below = layer.below
    elif _is_same(_read(layer.owner, layer.name), layer.value):
        _write(layer.owner, layer.name, layer.below)


def _is_same(one: Any, other: Any) -> bool:
    """os.environ makes a new text at every question."""
    return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)


def _read(owner: Any, name: str) -> Any:
    return (owner if isinstance(owner, Mapping) else vars(owner)).get(name, _MISSING)


def _write(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, MutableMapping):
        if value is _MISSING:
            del owner[name]
        else:
            owner[name] = value
    elif value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
