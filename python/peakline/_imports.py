"""Acts on modules as soon as the script has imported them, and never imports one itself."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]


@contextlib.contextmanager
def acting_on(actions: Mapping[str, Action]) -> Iterator[None]:
    """Calls `actions[name]` with module `name`, at once where it has been imported already."""
    for name, action in actions.items():
        module = sys.modules.get(name)
        if module is not None:
            action(module)
    finder: Any = _Finder(actions)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, actions: Mapping[str, Action]) -> None:
        self._actions = actions
        self._busy: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._actions or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.discard(name)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, self._actions[name])
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, and then the action."""

    def __init__(self, loader: Any, action: Action) -> None:
        self._own = loader
        self._action = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._action(module)
