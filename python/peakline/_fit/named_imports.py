"""Which modules a script imports, read from its text: nothing of it is run."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

_MOST = 200  # files of the script's own


def installed(path: str) -> list[str]:
    """Installed modules that the script, and files beside it that it imports, name at their top."""
    folder = Path(path).resolve().parent
    found: dict[str, None] = {}
    waiting: list[Path] = [Path(path)]
    seen: set[Path] = set()
    while waiting and len(seen) < _MOST:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _named(file):
            own = _beside(folder, name)
            if own is None:
                found[name] = None
            else:
                waiting.append(own)
    return [name for name in found if _exists(name)]


def _named(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in _at_the_top(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def _at_the_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements outside functions and classes, `try` and `if` looked into."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _at_the_top(node.body)
            yield from _at_the_top(getattr(node, "orelse", []))


def _beside(folder: Path, name: str) -> Path | None:
    where = folder.joinpath(*name.split("."))
    for file in (where.with_suffix(".py"), where / "__init__.py"):
        if file.is_file():
            return file
    first = folder / name.split(".")[0]
    return first / "__init__.py" if first.is_dir() else None


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name.split(".")[0]) is not None
    except (ImportError, ValueError):
        return False
