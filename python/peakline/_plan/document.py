"""Plans as JSON: read strictly, since people write them by hand, and written the same way again.

docs/plan.md has the schema. Whatever is wrong is one PlanError that says where.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from peakline._plan import names
from peakline._plan.errors import PlanError
from peakline._plan.levers import BY_KEY, LEVERS

SCHEMA = 1
WORLD_SIZE = "world-size"  # an argument that is the job's, and not the script's
POLICIES = ("recompute", "selective", "offload")
_LARGEST = 4 * 2**20  # bytes of a file
_MOST_CALLS = 100_000
_OP = re.compile(r"\w+\.\w+\.\w+")
_KEYS = ("schema_version", "model", "activations", "arguments", "about")

Calls = tuple[int, ...] | None  # which calls of an op in a module's forward; None: all


@dataclass(frozen=True)
class Activations:
    """What happens to that which forward leaves for backward, in some modules."""

    modules: tuple[str, ...]
    policy: str  # recompute everything, selective by op, offload everything
    keep: Mapping[str, Calls] = field(default_factory=dict)  # of selective: ops
    offload: Mapping[str, Calls] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    model: str = ""  # the class of the model that `activations` is about; "": any
    activations: tuple[Activations, ...] = ()
    levers: Mapping[str, Any] = field(default_factory=dict)  # by key
    arguments: Mapping[str, int] = field(default_factory=dict)  # the script's own
    about: Mapping[str, Any] = field(default_factory=dict)  # what was found out about it; no order

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"schema_version": SCHEMA}
        if self.model:
            made["model"] = self.model
        if self.activations:
            made["activations"] = [_entry(one) for one in self.activations]
        for lever in LEVERS:
            if lever.key in self.levers:
                group, _, name = lever.key.partition(".")
                if name:
                    made.setdefault(group, {})[name] = self.levers[lever.key]
                else:
                    made[group] = self.levers[lever.key]
        if self.arguments:
            made["arguments"] = dict(self.arguments)
        if self.about:
            made["about"] = dict(self.about)
        return made

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=2) + "\n"

    @property
    def is_empty(self) -> bool:
        return not (self.activations or self.levers or self.arguments)

    def changes(self) -> list[str]:
        """What it changes, in a few words each."""
        found = [f"{name} {value}" for name, value in self.arguments.items()]
        found += [BY_KEY[key].changes(self.levers[key]) for key in BY_KEY if key in self.levers]
        for one in self.activations:
            what = one.policy
            if what == "selective":
                kept, sent = _count(one.keep), _count(one.offload)
                what = f"recompute all but {kept}" if one.keep else "recompute"
                what += f", offload {sent}, in" if one.offload else " of"
            found.append(f"{what} {', '.join(names.compress(one.modules))}")
        return found


def _count(ops: Mapping[str, Calls]) -> str:
    if not ops:
        return "nothing"
    if any(calls is None for calls in ops.values()):
        return "all " + ", ".join(op.split(".")[1] for op in ops)
    number = sum(len(calls or ()) for calls in ops.values())
    return f"{number} op{'s' if number != 1 else ''}"


def _entry(one: Activations) -> dict[str, Any]:
    made: dict[str, Any] = {"modules": names.compress(one.modules), "policy": one.policy}
    for key, ops in (("keep", one.keep), ("offload", one.offload)):
        if ops:
            made[key] = {op: "all" if calls is None else list(calls) for op, calls in ops.items()}
    return made


def load(path: str | os.PathLike[str]) -> Plan:
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            text = file.read(_LARGEST + 1)
    except OSError as error:
        raise PlanError(f"cannot read '{name}': {error.strerror}") from None
    if len(text) > _LARGEST:
        raise PlanError(f"'{name}' is larger than a plan can be")
    try:
        return loads(text.decode())
    except UnicodeDecodeError:
        raise PlanError(f"'{name}' is no plan: it is no text") from None
    except PlanError as error:
        raise PlanError(f"'{name}' is no plan: {error}") from None


def loads(text: str) -> Plan:
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except PlanError:
        raise
    except RecursionError:
        raise PlanError("it is nested too deeply") from None
    except ValueError as error:
        raise PlanError(f"it is no JSON ({str(error)[:100]})") from None
    return parse(found)


def parse(found: Any) -> Plan:
    """A plan from what JSON gave."""
    if not isinstance(found, dict):
        raise PlanError("a plan is one JSON object")
    if found.get("schema_version") != SCHEMA or isinstance(found["schema_version"], bool):
        raise PlanError(f"its schema_version is not {SCHEMA}, the one that this peakline reads")
    groups = {key.partition(".")[0] for key in BY_KEY}
    _known(found, {*_KEYS, *groups}, "the plan")
    model = found.get("model", "")
    if not isinstance(model, str) or not model.isprintable() or len(model) > 500:
        raise PlanError("'model' is the name of a class")
    about = found.get("about", {})
    if not isinstance(about, dict):
        raise PlanError("'about' is an object")
    levers = dict(_levers(found))
    if levers.get("optimizer.in_backward") and levers.get("optimizer.state") == "host":
        raise PlanError("the optimizer is either in backward or has its state on the host")
    return Plan(
        model,
        _activations(found.get("activations", [])),
        levers,
        _arguments(found.get("arguments", {})),
        about,
    )


def _levers(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    given: dict[str, Any] = {}
    for group in {key.partition(".")[0] for key in BY_KEY}:
        if group not in found:
            continue
        if group in BY_KEY:
            given[group] = found[group]
            continue
        inside = found[group]
        if not isinstance(inside, dict):
            raise PlanError(f"'{group}' is an object")
        parts = {key.partition(".")[2] for key in BY_KEY if key.startswith(f"{group}.")}
        _known(inside, parts, f"'{group}'")
        given |= {f"{group}.{name}": value for name, value in inside.items()}
    for key, lever in BY_KEY.items():
        if key in given:
            if not lever.check(given[key]):
                raise PlanError(f"'{key}' takes {lever.takes}, and got {_shown(given[key])}")
            yield key, given[key]


def _activations(found: Any) -> tuple[Activations, ...]:
    if not isinstance(found, list):
        raise PlanError("'activations' is a list")
    made, seen = [], set[str]()
    for place, one in enumerate(found):
        entry = _one_entry(one, f"activations[{place}]")
        made.append(entry)
        for name in entry.modules:
            if name in seen:
                raise PlanError(f"activations[{place}] names {name}, which is named before")
            seen.add(name)
    for name in seen:
        around = name.rpartition(".")[0]
        while around:
            if around in seen:
                raise PlanError(f"{name} lies inside {around}, and 'activations' names both")
            around = around.rpartition(".")[0]
    return tuple(made)


def _one_entry(one: Any, where: str) -> Activations:
    if not isinstance(one, dict):
        raise PlanError(f"{where} is an object")
    _known(one, {"modules", "policy", "keep", "offload"}, where)
    policy = one.get("policy")
    if policy not in POLICIES:
        raise PlanError(f"{where}.policy is one of {', '.join(POLICIES)}, and is {_shown(policy)}")
    given = one.get("modules")
    if not isinstance(given, list) or not given or not all(isinstance(x, str) for x in given):
        raise PlanError(f"{where}.modules is a list of names")
    modules = [name for written in given for name in names.expand(written)]
    if len(modules) > _MOST_CALLS:
        raise PlanError(f"{where}.modules names {len(modules)} modules, more than any model has")
    keep, offload = (_ops(one.get(key, {}), f"{where}.{key}") for key in ("keep", "offload"))
    if policy != "selective" and (keep or offload):
        raise PlanError(f"{where}: 'keep' and 'offload' are for the policy 'selective'")
    for op in keep.keys() & offload.keys():
        both = keep[op], offload[op]
        if None in both or set(both[0] or ()) & set(both[1] or ()):
            raise PlanError(f"{where}: calls of {op} are both kept and offloaded")
    return Activations(tuple(modules), policy, keep, offload)


def _ops(found: Any, where: str) -> dict[str, Calls]:
    if not isinstance(found, dict):
        raise PlanError(f"{where} is an object of ops")
    made: dict[str, Calls] = {}
    for op, calls in found.items():
        if not _OP.fullmatch(op):
            raise PlanError(f"{where}: '{op[:80]}' is no op; write aten.mm.default")
        if not _may_be_there(op):
            raise PlanError(f"{where}: torch has no op '{op[:80]}'")
        if calls == "all":
            made[op] = None
            continue
        good = isinstance(calls, list) and 0 < len(calls) <= _MOST_CALLS
        if not good or not all(type(n) is int and 0 <= n < _MOST_CALLS for n in calls):
            raise PlanError(f"{where}.{op} is 'all' or a list of calls, counted from 0")
        made[op] = tuple(sorted(set(calls)))
    return made


def _may_be_there(op: str) -> bool:
    """Ops of others may be registered later."""
    library, name, overload = op.split(".")
    if library not in ("aten", "prims"):
        return True
    return hasattr(getattr(getattr(torch.ops, library), name, None), overload)


def _arguments(found: Any) -> dict[str, int]:
    if not isinstance(found, dict):
        raise PlanError("'arguments' is an object")
    for name, value in found.items():
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            raise PlanError(f"'{name[:80]}' is no name of an argument")
        if type(value) is not int:
            raise PlanError(f"the argument '{name}' is a whole number, and is {_shown(value)}")
    return dict(found)


def _known(found: dict[str, Any], known: set[str], where: str) -> None:
    for key in found:
        if key not in known:
            meant = names.closest(key, sorted(known))
            hint = f"; did you mean '{meant}'?" if meant else ""
            raise PlanError(f"{where} has no '{key[:80]}'{hint}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise PlanError(f"'{twice[:80]}' stands there twice")
    return made


def _no_number(text: str) -> Any:
    raise PlanError(f"{text} is no number")


def _shown(value: Any) -> str:
    return repr(value)[:80]


def write(plan: Plan, path: str | os.PathLike[str]) -> None:
    Path(path).write_text(plan.dumps())
