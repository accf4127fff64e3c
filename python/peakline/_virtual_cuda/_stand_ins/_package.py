"""What a stand-in consists of."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from peakline._virtual_cuda._engine import Engine


@dataclass(frozen=True)
class Package:
    name: str
    version: str  # what it says it is
    modules: dict[str, dict[str, Any]]  # by their full names: what is in them
    # Whether libraries that merely prefer it where it is installed go without.
    for_programs_only: bool = False

    def is_package(self, module: str) -> bool:
        return any(name.startswith(module + ".") for name in self.modules)


def applied(function: Any, *args: Any) -> Any:
    """An autograd function's `apply`, which has no types."""
    return function.apply(*args)


class Region:
    """Marks what happens inside, and its backward pass, as modelled."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        self._engine.enter_compiled_region(True)
        try:
            yield
        finally:
            self._engine.leave_compiled_region()

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.entered():
                return function(*args, **kwargs)

        return call


def marked_module(module: type, region: Region) -> type:
    """The module's class, with all that its `forward` does marked."""
    return type(module.__name__, (module,), {"forward": region.around(module.forward)})  # type: ignore[attr-defined]
