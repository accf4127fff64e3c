"""`--step-on`: a step is what the user says it is."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from peakline._imports import acting_on
from peakline._patches import Patches
from peakline._script import Module, Script
from peakline._steps import Steps

FORWARD = "forward"  # of the outermost module
_MAIN = "__main__"


def full_name(given: str) -> str:
    """A bare name is a function of the script itself."""
    return given if given == FORWARD or "." in given else f"{_MAIN}.{given}"


def check(name: str, program: Script | Module) -> str:
    """The name, of the script where it is one of the script's own. Refused before the program runs
    where it cannot be right, which would let it run for ever."""
    if name == FORWARD:
        return name
    name = _of_script(name, program)
    first, *rest = name.split(".")
    if first == _MAIN:
        if not program.defines(rest[0]):
            raise ValueError(f"--step-on names {rest[0]}, which the script does not define")
    elif first not in sys.modules and importlib.util.find_spec(first) is None:
        raise ValueError(f"--step-on names {name}, and there is no module {first}")
    return name


def _of_script(name: str, program: Script | Module) -> str:
    """train.py's Trainer.step may be called train.Trainer.step, and Trainer.step."""
    if name.startswith(program.name + "."):
        return f"{_MAIN}.{name.removeprefix(program.name + '.')}"
    first = name.partition(".")[0]
    if first in sys.modules or importlib.util.find_spec(first) is not None:
        return name
    defined = isinstance(program, Script) and program.defines(first)
    return f"{_MAIN}.{name}" if defined else name


class NamedSteps:
    """Counts calls of one function or method, wherever it is defined, from its first call on."""

    def __init__(self, name: str, steps: Steps) -> None:
        self.name = name
        self._steps = steps
        self._patches = Patches()
        self._found = False
        self._depth = 0
        steps.count_only(name)

    @property
    def in_script(self) -> bool:
        """It is defined by the script that is run, so the script's own lines have to be watched."""
        return self.name.startswith(_MAIN + ".")

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        parts = self.name.split(".")
        modules = [".".join(parts[:end]) for end in range(1, len(parts))]
        with contextlib.ExitStack() as stack:
            stack.callback(self._patches.restore)
            if self.name == FORWARD:
                stack.enter_context(self._outermost_forwards())
            elif not self.in_script:
                stack.enter_context(acting_on(dict.fromkeys(modules, self._look_in)))
            yield

    def look_in_script(self) -> None:
        """A statement of the script has been executed."""
        self._look_in(sys.modules[_MAIN])

    def _look_in(self, module: ModuleType) -> None:
        if self._found:
            return
        owner: Any = module
        rest = self.name[len(_MAIN if self.in_script else module.__name__) + 1 :].split(".")
        for name in rest[:-1]:
            owner = getattr(owner, name, None)
        if owner is None or not callable(getattr(owner, rest[-1], None)):
            return
        self._found = True
        self._patches.set(owner, rest[-1], self._counting(owner, rest[-1]))

    def _counting(self, owner: Any, name: str) -> Any:
        raw = inspect.getattr_static(owner, name)
        if isinstance(raw, (staticmethod, classmethod)):
            return type(raw)(self._counts(raw.__func__))
        return self._counts(raw)

    def _counts(self, function: Any) -> Any:
        @functools.wraps(function)
        def counting(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                result = function(*args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0:
                self._steps.end(self.name)
            return result

        return counting

    @contextlib.contextmanager
    def _outermost_forwards(self) -> Iterator[None]:
        def before(module: nn.Module, args: Any) -> None:
            self._depth += 1

        def after(module: nn.Module, args: Any, result: Any) -> None:
            self._depth -= 1
            if self._depth == 0 and sys.exc_info()[0] is None:
                self._steps.end(self.name)

        handles = [
            register_module_forward_pre_hook(before),
            register_module_forward_hook(after, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
