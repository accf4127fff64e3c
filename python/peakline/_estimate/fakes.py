"""`--fakes FILE.py`: shapes of custom ops' and extensions' results, told beside the script."""

from __future__ import annotations

import contextlib
import functools
import runpy
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from peakline._imports import acting_on
from peakline._patches import Patches
from peakline._virtual_cuda import _cuda_sources

_NEVER_MET = "{names}, for which --fakes has a fake, was never defined by the script"


class Fakes:
    """The fakes of a file. Each is registered as soon as the script has defined its op.

    What the file calls like an extension that the script builds takes that one's place.
    """

    def __init__(self, path: str | None) -> None:
        self._waiting: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
        self._defining = False  # an op of torch.library.custom_op, which is not complete yet
        self._named: dict[str, Any] = {}
        if path is not None:
            self._read(path)

    def _read(self, path: str) -> None:
        with Patches() as patches:
            patches.set(torch.library, "register_fake", self._collect)
            try:
                self._named = runpy.run_path(path)
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
        """Inside, an op that is looked up has its fake, and an extension is not built."""
        with Patches() as patches:
            if self._waiting:
                self._find_with_fakes(patches)
            if self._named:
                patches.keep(acting_on({_cuda_sources.MODULE: self._in_place_of(patches)}))
            yield

    def _find_with_fakes(self, patches: Patches) -> None:
        find = torch._ops._OpNamespace.__getattr__

        def find_with_fake(namespace: Any, name: str) -> Any:
            self._register_defined()
            return find(namespace, name)

        define = CustomOpDef.__init__

        def define_with_fake(op: CustomOpDef, *args: Any, **kwargs: Any) -> None:
            self._defining = True
            try:
                define(op, *args, **kwargs)
            finally:
                self._defining = False
            self._register_defined()

        patches.set(torch._ops._OpNamespace, "__getattr__", find_with_fake)
        patches.set(CustomOpDef, "__init__", define_with_fake)
        self._register_defined()

    def _in_place_of(self, patches: Patches) -> Callable[[ModuleType], None]:
        def act(module: ModuleType) -> None:
            for function in ("load", "load_inline"):
                patches.set(module, function, self._unless_named(getattr(module, function)))

        return act

    def _unless_named(self, load: Any) -> Any:
        @functools.wraps(load)
        def load_unless_named(name: str, *args: Any, **kwargs: Any) -> Any:
            return self._named[name] if name in self._named else load(name, *args, **kwargs)

        return load_unless_named

    def sentences(self) -> list[str]:
        return [_NEVER_MET.format(names=", ".join(self._waiting))] if self._waiting else []

    def _register_defined(self) -> None:
        if self._defining:
            return
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
