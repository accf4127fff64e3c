"""Every name that callers of torch.distributed._tools touch is in peakline, called the same way.

Two sources: the modules of the installed torch, walked; and `tests/data/tool_names.json`, names
that public documentation of these tools lists, nested functions included.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MODULES = [
    "common_utils",
    "fake_collectives",
    "fsdp2_mem_tracker",
    "mem_tracker",
    "memory_tracker",
    "mod_tracker",
    "runtime_estimator",
    "sac_estimator",
    "ilp_utils",
]
UPSTREAM = "torch.distributed._tools"
DATA = Path(__file__).parents[2] / "data" / "tool_names.json"
LISTED = json.loads(DATA.read_text())
# Written inside a docstring's example, or replaced by one that leaves the caller's settings alone.
NOT_OURS = {"my_linear", "custom_formatwarning", "_plot_figure", "add_inps_or_outs", "_grad_hook"}


def modules(name: str) -> tuple[types.ModuleType, types.ModuleType]:
    return importlib.import_module(f"{UPSTREAM}.{name}"), importlib.import_module(
        f"peakline.{name}"
    )


def own(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if name.startswith("__") or isinstance(value, types.ModuleType) or name == "TYPE_CHECKING":
            continue
        if getattr(value, "__module__", module.__name__) == module.__name__:
            yield name, value


def wanted() -> list[tuple[str, str]]:
    return [
        (m, name) for m in MODULES for name, _ in own(importlib.import_module(f"{UPSTREAM}.{m}"))
    ]


def same_call(upstream: Any, ours: Any) -> None:
    """Whatever can be passed to upstream's can be passed to ours; more is allowed at the end."""
    theirs = inspect.signature(upstream).parameters.values()
    mine = list(inspect.signature(ours).parameters.values())
    for parameter, other in zip(theirs, mine, strict=False):
        assert (other.name, other.kind) == (parameter.name, parameter.kind)
        assert (other.default is inspect.Parameter.empty) == (
            parameter.default is inspect.Parameter.empty
        )
        if isinstance(parameter.default, (str, int, bool)):
            assert other.default == parameter.default
    assert len(mine) >= len(list(theirs))
    for extra in mine[len(list(theirs)) :]:
        assert extra.default is not inspect.Parameter.empty


@pytest.mark.parametrize(("module", "name"), wanted())
def test_upstreams_names_are_here_and_are_called_the_same_way(module: str, name: str) -> None:
    upstream, ours = modules(module)
    theirs = getattr(upstream, name)
    mine = getattr(ours, name)
    if inspect.isclass(theirs):
        assert inspect.isclass(mine)
        if issubclass(theirs, enum.Enum):
            assert {m.name: m.value for m in mine} == {m.name: m.value for m in theirs}
        for member, value in vars(theirs).items():
            if member.startswith("__") and not callable(value):
                continue
            assert hasattr(mine, member), f"{name}.{member}"
            if inspect.isfunction(value):
                same_call(value, getattr(mine, member))
    elif inspect.isfunction(theirs):
        same_call(theirs, mine)
    elif isinstance(theirs, (int, str, float)):
        assert mine is theirs or mine == theirs


@pytest.mark.parametrize("module", ["mem_tracker", "memory_tracker"])
def test_instances_have_upstreams_attributes(module: str) -> None:
    upstream, ours = modules(module)
    name = {"mem_tracker": "MemTracker", "memory_tracker": "MemoryTracker"}[module]
    mine = getattr(ours, name)()
    for attribute in vars(getattr(upstream, name)()):
        assert hasattr(mine, attribute), attribute


def test_trackers_of_modules_have_upstreams_attributes() -> None:
    upstream, ours = modules("mod_tracker")
    mine = ours.ModTracker()
    for attribute in vars(upstream.ModTracker()):
        assert hasattr(mine, attribute), attribute


def code_names(code: types.CodeType) -> Iterator[str]:
    yield code.co_name
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_names(constant)


def all_names(module: types.ModuleType) -> set[str]:
    """Names of a module, of its classes' members, and of functions inside functions."""
    found = set(vars(module))
    for value in list(vars(module).values()):
        members = list(vars(value).values()) if inspect.isclass(value) else [value]
        found |= set(vars(value)) if inspect.isclass(value) else set()
        for member in members:
            member = getattr(member, "fget", None) or member
            code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
            if code is not None:
                found |= set(code_names(code))
    return found


@pytest.mark.parametrize("module", [m for m in MODULES if m in LISTED])
@pytest.mark.parametrize("kind", ["classes", "functions", "constants"])
def test_documented_names_are_here(module: str, kind: str) -> None:
    found = all_names(importlib.import_module(f"peakline.{module}"))
    missing = set(LISTED[module].get(kind, [])) - found - NOT_OURS
    assert not missing


@pytest.mark.parametrize(
    "name",
    [
        "FSDPMemTracker",
        "MSPS",
        "MemTracker",
        "MemoryTracker",
        "ModTracker",
        "RuntimeEstimator",
        "SACEstimator",
        "SACGreedyOrderMeta",
        "SACStats",
        "SACTradeOffStats",
    ],
)
def test_the_package_exports_what_upstreams_package_does(name: str) -> None:
    import torch.distributed._tools as upstream

    import peakline

    assert hasattr(upstream, name)
    assert getattr(peakline, name).__name__ == name
