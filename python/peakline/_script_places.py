"""Where a line of a script can name a variable: behind the last one that gives it its value."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from peakline._stacks import is_library

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


@dataclass(frozen=True)
class Place:
    """Where a line of the script can name it."""

    scope: str = ""  # the function or class; "" where nobody knows
    line: int = 0
    words: str = ""  # "after line 12 of train.py"


_UNKNOWN = Place()


def is_of_program(file: str) -> bool:
    """Where a line can be pasted."""
    is_installed = "/site-packages/" in file or "/dist-packages/" in file
    return not (file.startswith((_OURS, "<string>")) or is_installed or is_library(file))


def place_of(frame: types.FrameType, name: str) -> Place:
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


def made_by_class(kind: type[Any], attribute: str) -> Place | None:
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


def end_of_init(kind: type[Any]) -> Place:
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
        tree = _tree(file) if file and is_of_program(file) else None
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
