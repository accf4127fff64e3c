"""`--fakes FILE.py`: shapes of custom ops' results, told beside the script."""

from __future__ import annotations

import contextlib
import runpy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from peakline._patches import Patches

_NEVER_MET = "{names}, for which --fakes has a fake, was never defined by the script"


class Fakes:
    """The fakes of a file. Each is registered as soon as the script has defined its op."""

    def __init__(self, path: str | None) -> None:
        self._waiting: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
        if path is not None:
            self._read(path)

    def _read(self, path: str) -> None:
        with Patches() as patches:
            patches.set(torch.library, "register_fake", self._collect)
            try:
                runpy.run_path(path)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise ValueError(f"'{path}', which --fakes names, failed: {reason}") from None

    def _collect(self, op: Any, func: Any = None, /, **kwargs: Any) -> Any:
        """As torch.library.register_fake, for later."""
        if func is None:
            return lambda function: self._collect(op, function, **kwargs)
        name = op if isinstance(op, str) else getattr(op, "_qualname", None) or op._schema.name
        self._waiting[name] = (func, kwargs)
        return func

    @contextlib.contextmanager
    def registered(self) -> Iterator[None]:
        """Inside, an op that is looked up has its fake."""
        if not self._waiting:
            yield
            return
        find = torch._ops._OpNamespace.__getattr__

        def find_with_fake(namespace: Any, name: str) -> Any:
            self._register_defined()
            return find(namespace, name)

        with Patches() as patches:
            patches.set(torch._ops._OpNamespace, "__getattr__", find_with_fake)
            self._register_defined()
            yield

    def sentences(self) -> list[str]:
        return [_NEVER_MET.format(names=", ".join(self._waiting))] if self._waiting else []

    def _register_defined(self) -> None:
        for name in [name for name in self._waiting if _is_defined(name)]:
            function, kwargs = self._waiting.pop(name)
            torch.library.register_fake(name, function, **kwargs)


def _is_defined(name: str) -> bool:
    base, _, overload = name.partition(".")
    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
