"""Regions that the program asked to compile, run eagerly: without Triton, or as the user wants it.

What a compiled region would allocate is another matter, so what it allocates here is a guess.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes

_NOTE = (
    "torch.compile was left out, because {reason}: what {names} would allocate when compiled is "
    "estimated as running eagerly, and counts as guessed"
)
_MOST_NAMES = 4


def install(patches: Patches, notes: Notes, engine: Engine, reason: str) -> None:
    regions = Regions(notes, engine, _NOTE.replace("{reason}", reason))

    def compile(model: Any = None, *args: Any, disable: bool = False, **kwargs: Any) -> Any:
        if model is None:
            return lambda wrapped: compile(wrapped, disable=disable)
        if disable:
            return model
        return regions.module(model) if isinstance(model, torch.nn.Module) else regions.mark(model)

    def compile_module(
        self: torch.nn.Module, *args: Any, disable: bool = False, **kwargs: Any
    ) -> None:
        if not disable:
            regions.module(self)

    patches.set(torch, "compile", compile)
    patches.set(torch.nn.Module, "compile", compile_module)


class Regions:
    """What the program asked to compile. `note` says why they run eagerly, and has {names}."""

    def __init__(self, notes: Notes, engine: Engine, note: str) -> None:
        self._notes = notes
        self._sentence = note
        self._engine = engine
        self._names: dict[str, None] = {}

    def module(self, module: torch.nn.Module) -> torch.nn.Module:
        """torch calls a compiled module through `_compiled_call_impl`; the module stays itself."""
        itself = weakref.ref(module)  # it must not keep itself alive

        def call(*args: Any, **kwargs: Any) -> Any:
            found: Any = itself()
            return found._call_impl(*args, **kwargs)

        marked: Any = self.mark(call, type(module).__name__)
        module._compiled_call_impl = marked
        return module

    def mark(self, function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
        self._note(name or str(getattr(function, "__qualname__", function)))

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._engine.enter_compiled_region()
            try:
                return function(*args, **kwargs)
            finally:
                self._engine.leave_compiled_region()

        return run

    def _note(self, name: str) -> None:
        self._names.setdefault(name)
        names = list(self._names)
        shown = ", ".join(names[:_MOST_NAMES])
        if len(names) > _MOST_NAMES:
            shown += f" and {len(names) - _MOST_NAMES} more"
        self._notes.put("compile", self._sentence.format(names=shown))
