"""What a script calls its models and its optimizer, and where: so that a line to paste works there.

Asked inside the program's own calls, at the end of a step: whatever has led there, from the script
itself inwards, is looked at. Said is an expression and the place behind which it can be used.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer

from peakline._frame_variables import variables_of
from peakline._script_places import Place, end_of_init, is_of_program, made_by_class, place_of

_MOST_ATTRIBUTES = 1000  # of one object
_INIT = ".__init__"
_MOST = 16  # variables in a recording


@dataclass(frozen=True)
class ScriptVariable:
    expression: str  # model, self.net, trainer.model
    place: Place
    value: Any


def held(kind: type[Any]) -> list[ScriptVariable]:
    """Those that hold an instance of `kind`, the best to name first.

    The script's own come before those of the functions that it calls: these may run once a step.
    What a function calls by a name of its own comes before what an object there holds.
    """
    found: list[ScriptVariable] = []
    for frame in reversed(_frames_of_program()):
        variables = [one for one in variables_of(frame) if one[0].isidentifier()]
        found += [
            ScriptVariable(name, place_of(frame, name), value)
            for name, value in variables
            if isinstance(value, kind) and name != "self"
        ]
        for name, value in variables:
            found += _attributes(frame, name, value, kind)
    return found


def models(outermost: Iterable[nn.Module]) -> list[ScriptVariable]:
    """`outermost`: those that have been met. What no variable holds may be named in its class."""
    made = [ScriptVariable("self", end_of_init(type(one)), one) for one in outermost]
    return held(nn.Module) + [one for one in made if one.place.scope]


def optimizers() -> list[ScriptVariable]:
    return held(Optimizer)


@dataclass(frozen=True)
class Together:
    """What one line can call a model and its optimizer, and where."""

    model: str
    optimizer: str
    place: str


def together(
    models: Iterable[ScriptVariable], optimizers: Sequence[ScriptVariable]
) -> Together | None:
    """The best of each that have a place in common."""
    for model in models:
        for optimizer in optimizers:
            if model.place.scope and model.place.scope == optimizer.place.scope:
                last = max(model.place, optimizer.place, key=lambda place: place.line)
                return Together(model.expression, optimizer.expression, last.words)
    return None


def facts(
    models: Iterable[ScriptVariable],
    optimizers: Sequence[ScriptVariable],
    path_of: Callable[[nn.Module], str],
) -> dict[str, str]:
    """For a recording: those of modules that are known by a path, and of an optimizer."""
    lines, known = [], []
    for one in models:
        path = next(filter(None, map(path_of, unwrapped(one.value))), "")
        if path:
            known.append(one)
            lines.append(f"{one.expression}\t{one.place.words}\t{path}")
    found = {"script_models": "\n".join(lines[:_MOST])} if lines else {}
    if both := together(known, optimizers):
        found["script_optimizer"] = f"{both.model}\t{both.optimizer}\t{both.place}"
    return found


def unwrapped(module: nn.Module) -> Iterator[nn.Module]:
    """The module itself, and what torch.compile or DDP has put it around."""
    while True:
        yield module
        around = module._modules
        inside = around.get("_orig_mod") or around.get("module")
        if inside is None:
            return
        module = inside


# Frames and variables.


def _frames_of_program() -> list[types.FrameType]:
    """The innermost first."""
    frames = []
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if is_of_program(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return frames


def _attributes(
    frame: types.FrameType, name: str, thing: Any, kind: type[Any]
) -> Iterator[ScriptVariable]:
    """Of an object that is no module: `self.model`, `trainer.model`."""
    if isinstance(thing, (nn.Module, Optimizer, type, types.ModuleType, types.FunctionType)):
        return
    try:
        inside = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return
    if type(inside) is not dict or len(inside) > _MOST_ATTRIBUTES:
        return
    for attribute, value in list(inside.items()):
        if isinstance(value, kind) and str(attribute).isidentifier():
            made = made_by_class(type(thing), attribute)
            if made is not None and (name == "self" or not made.scope.endswith(_INIT)):
                yield ScriptVariable(f"self.{attribute}", made, value)
            elif name != "self" and (made is not None or kind is nn.Module):
                # Whoever has the object has the attribute; a library's trainer makes its optimizer
                # later than itself.
                yield ScriptVariable(f"{name}.{attribute}", place_of(frame, name), value)
