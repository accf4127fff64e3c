"""What a script calls its models and its optimizer, and where: so that a line to paste works there.

Asked inside the program's own calls, at the end of a step: whatever has led there, from the script
itself inwards, is looked at. Said is an expression and the place behind which it can be used.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer

from peakline._frame_variables import variables_of
from peakline._stacks import is_library

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_MOST_ATTRIBUTES = 1000  # of one object
_INIT = ".__init__"
_MOST = 16  # variables in a recording


@dataclass(frozen=True)
class Place:
    """Where a line of the script can name it."""

    scope: str = ""  # the function or class; "" where nobody knows
    line: int = 0
    words: str = ""  # "after line 12 of train.py"


_UNKNOWN = Place()


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
            ScriptVariable(name, _place_of(frame, name), value)
            for name, value in variables
            if isinstance(value, kind) and name != "self"
        ]
        for name, value in variables:
            found += _attributes(frame, name, value, kind)
    return found


def models(outermost: Iterable[nn.Module]) -> list[ScriptVariable]:
    """`outermost`: those that have been met. What no variable holds may be named in its class."""
    made = [ScriptVariable("self", _end_of_init(type(one)), one) for one in outermost]
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


def facts(outermost: Iterable[nn.Module], path_of: Callable[[nn.Module], str]) -> dict[str, str]:
    """For a recording: those of modules that are known by a path, and of an optimizer."""
    lines, known = [], []
    for one in models(outermost):
        path = next(filter(None, map(path_of, unwrapped(one.value))), "")
        if path:
            known.append(one)
            lines.append(f"{one.expression}\t{one.place.words}\t{path}")
    found = {"script_models": "\n".join(lines[:_MOST])} if lines else {}
    if both := together(known, optimizers()):
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
        if _is_of_program(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return frames


def _is_of_program(file: str) -> bool:
    """Where a line can be pasted."""
    is_installed = "/site-packages/" in file or "/dist-packages/" in file
    return not (file.startswith((_OURS, "<string>")) or is_installed or is_library(file))


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
            made = _made_by_class(type(thing), attribute)
            if made is not None and (name == "self" or not made.scope.endswith(_INIT)):
                yield ScriptVariable(f"self.{attribute}", made, value)
            elif name != "self" and (made is not None or kind is nn.Module):
                # Whoever has the object has the attribute; a library's trainer makes its optimizer
                # later than itself.
                yield ScriptVariable(f"{name}.{attribute}", _place_of(frame, name), value)


# Places in the source.


def _place_of(frame: types.FrameType, name: str) -> Place:
    """Behind the last line before the one that runs that gives the variable its value."""
    file = frame.f_code.co_filename
    inside = _node_of(file, frame.f_code)
    if inside is None:
        return _UNKNOWN
    scope = f"{file}:{frame.f_code.co_qualname}"
    running = frame.f_lineno
    # In a loop that goes on a line would run again and again.
    before = [last for last in _given(inside, name, running) if last < running]
    lines = before or [last for last in _given(inside, name) if last < running]
    if lines:
        return Place(scope, max(lines), _after(file, max(lines)))
    if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef) and name in _arguments(inside):
        words = f"at the start of {inside.name}() in {_named(file)}"
        return Place(scope, inside.lineno, words)
    return _UNKNOWN


def _made_by_class(kind: type[Any], attribute: str) -> Place | None:
    """Behind the line of the class's own code that gives the attribute its value."""
    for file, node in _sources(kind):
        given = [
            Place(f"{file}:{node.name}.{one.name}", line, _after(file, line))
            for one in _methods(node)
            for line in _given(one, f"self.{attribute}")
        ]
        if given:
            return max(given, key=lambda place: place.line)
    return None


def _end_of_init(kind: type[Any]) -> Place:
    for file, node in _sources(kind):
        for one in _methods(node):
            if one.name == "__init__":
                words = f"at the end of {node.name}.__init__() in {_named(file)}"
                return Place(f"{file}:{node.name}.__init__", one.end_lineno or one.lineno, words)
    return _UNKNOWN


def _sources(kind: type[Any]) -> Iterator[tuple[str, ast.ClassDef]]:
    """Of the class and those that it is made from, as far as they are the program's."""
    for base in kind.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
        tree = _tree(file) if file and _is_of_program(file) else None
        for node in () if tree is None else ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                yield file, node


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef)]


def _after(file: str, line: int) -> str:
    return f"after line {line} of {_named(file)}"


def _named(file: str) -> str:
    return " ".join(os.path.basename(file).split())  # on one line, without tabs


def _tree(file: str) -> ast.Module | None:
    linecache.checkcache(file)
    return _parsed("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _node_of(file: str, code: types.CodeType) -> ast.AST | None:
    """What the code was compiled from: a module or a function of it."""
    tree = _tree(file)
    if tree is None or not tree.body or code.co_name == "<module>":
        return tree if tree is not None and tree.body else None
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        if node.name == code.co_name and first == code.co_firstlineno:
            return node
    return None


def _given(inside: ast.AST, written: str, running: int = 0) -> Iterator[int]:
    """The last lines of the statements that assign to it; not those of functions in it, nor of
    loops around the line `running`."""
    for node in ast.iter_child_nodes(inside):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.For | ast.While) and node.lineno <= running <= (
            node.end_lineno or 0
        ):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for_now = node.value is None or isinstance(node.value, ast.Constant)  # x = None
            names = [name for one in targets for name in _parts(one)]
            if not for_now and any(ast.unparse(name) == written for name in names):
                yield node.end_lineno or node.lineno
        yield from _given(node, written, running)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    """`a, (b, *c) = …` gives a value to three."""
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _parts(one)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {one.arg for one in every if one is not None}
