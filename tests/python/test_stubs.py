"""`_C.pyi` names what the extension has, and nothing else."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import peakline
from peakline import _C

STUB = Path(peakline.__file__).with_name("_C.pyi")
# What pybind11 puts into every class.
EVERYWHERE = {"__new__", "__init__", "__module__", "__doc__", "__hash__", "_pybind11_conduit_v1_"}


def declared(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Names of a stub, each with what stands inside it."""
    found: dict[str, list[ast.stmt]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = []
        elif isinstance(node, ast.ClassDef):
            found[node.name] = node.body
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = []
    return {name: inside for name, inside in found.items() if not name.startswith("_")}


def there(thing: Any) -> set[str]:
    """Names of a module or class, less Python's own."""
    names = vars(thing)
    return {name for name in names if not name.startswith("_") and name not in EVERYWHERE}


def differences(stub: list[ast.stmt], thing: Any, where: str) -> list[str]:
    names = declared(stub)
    found = [f"{where}.{name} is not in the stub" for name in sorted(there(thing) - set(names))]
    found += [f"{where}.{name} is only in the stub" for name in sorted(set(names) - there(thing))]
    for name, inside in names.items():
        part = getattr(thing, name, None)
        if inside and (inspect.isclass(part) or inspect.ismodule(part)):
            found += differences(inside, part, f"{where}.{name}")
    return found


def test_the_stub_names_what_the_extension_has() -> None:
    assert differences(ast.parse(STUB.read_text()).body, _C, "_C") == []


def test_a_name_too_many_or_too_few_is_found() -> None:
    text = STUB.read_text().replace("def sync(self)", "def sink(self)").replace("version: str", "")
    found = differences(ast.parse(text).body, _C, "_C")
    assert "_C.version is not in the stub" in found
    assert "_C.Session.sync is not in the stub" in found
    assert "_C.Session.sink is only in the stub" in found


def test_the_package_says_that_it_is_typed() -> None:
    assert STUB.with_name("py.typed").exists()
