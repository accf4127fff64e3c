"""One step of a program, looked at closely: its layers, their ops, and which levers it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from peakline import _script_variables
from peakline._plan.facts import FactFinder, Facts, OptimizerFacts, ShardFacts
from peakline._plan.op_profile import ModuleProfile, Op, OpProfiler
from peakline._plan.units import shape_of, units_of
from peakline._script_sizes import Size
from peakline._script_variables import ScriptVariable, Together, unwrapped


@dataclass
class Kind:
    """Layers that do the same: one of them was looked at."""

    profile: ModuleProfile
    members: list[str] = field(default_factory=list)  # names, in the order of forward


@dataclass
class Named:
    """What the script calls its model, and where."""

    expression: str
    place: str = ""


@dataclass
class Found:
    """What a probe brings back."""

    model: str = ""  # the class of that which the layers are named in
    kinds: list[Kind] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    pcie_gbps: float = 0.0
    called: Named | None = None  # the model, by the script
    together: Together | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Found:
        facts = dict(found["facts"])
        facts["optimizers"] = [OptimizerFacts(**one) for one in facts["optimizers"]]
        facts["sizes"] = [Size(**one) for one in facts.get("sizes", [])]
        facts["fsdp"] = ShardFacts(**facts["fsdp"]) if facts["fsdp"] else None
        kinds = []
        for kind in found["kinds"]:
            kinds.append(Kind(_profile(kind["profile"]), list(kind["members"])))
        called = Named(**found["called"]) if found.get("called") else None
        together = Together(**found["together"]) if found.get("together") else None
        return Found(found["model"], kinds, Facts(**facts), found["pcie_gbps"], called, together)


class Probe:
    def __init__(self) -> None:
        self._finder = FactFinder()
        self._models: list[_Model] = []
        self._stepped = False

    @contextmanager
    def before(self, gpu: Any) -> Iterator[None]:
        gpu.on_model(self._met)
        gpu.steps.on_end(self._ask_for_names, first=True)
        try:
            with self._finder.watching():
                yield
        finally:
            for model in self._models:
                model.leave()

    def _met(self, model: nn.Module) -> None:
        if any(parameter.requires_grad for parameter in model.parameters()):
            self._models.append(_Model(model))

    def _ask_for_names(self) -> None:
        """While the script's own calls go on."""
        if self._stepped:
            return
        self._stepped = True
        if largest := self._largest():
            largest.name_by_variables()

    def _largest(self) -> _Model | None:
        return max(self._models, key=lambda model: model.saved, default=None)

    def found(self) -> Found:
        largest = self._largest()
        if largest is None:
            return Found(facts=self._finder.facts)
        found = Found(largest.name, largest.kinds(), self._finder.facts)
        found.called, found.together = largest.called, largest.together
        return found


class _Model:
    def __init__(self, model: nn.Module) -> None:
        held = getattr(model, "module", None)  # by DDP
        inner = held if isinstance(held, nn.Module) else model
        self.name = _class_of(inner)
        self.called: Named | None = None
        self.together: Together | None = None
        self._inner = inner
        self._kinds: dict[Any, Kind] = {}
        self._named: set[str] = set()
        self._wrapped: list[nn.Module] = []
        for name, unit in units_of(inner).items():
            if "forward" not in vars(unit):
                self._wrap(name, unit)

    @property
    def saved(self) -> int:
        return sum(len(kind.members) * kind.profile.saved for kind in self._kinds.values())

    def kinds(self) -> list[Kind]:
        return [kind for kind in self._kinds.values() if kind.profile.saved > 0]

    def name_by_variables(self) -> None:
        """Names the layers as they are called in the script's first variable that has them all."""
        paths = {id(module): name for name, module in self._inner.named_modules()}
        members = [name for kind in self.kinds() for name in kind.members]

        def around_all(one: ScriptVariable) -> nn.Module | None:
            for module in unwrapped(one.value):
                before = paths.get(id(module))
                if before is not None and all(_lies_in(name, before) for name in members):
                    return module
            return None

        held = [(one, around_all(one)) for one in _script_variables.models([self._inner])]
        first = next((one for one in held if one[1] is not None), None)
        if first is None:
            return
        variable, module = first
        before = paths[id(module)]
        for kind in self._kinds.values():
            kind.members = [name[len(before) + 1 if before else 0 :] for name in kind.members]
        self.name = _class_of(module) if module is not None else self.name
        self.called = Named(variable.expression, variable.place.words)
        same = [one for one, inside in held if inside is module]
        self.together = _script_variables.together(same, _script_variables.optimizers())

    def leave(self) -> None:
        while self._wrapped:
            unit = self._wrapped.pop()
            if "forward" in vars(unit):
                del unit.forward

    def _wrap(self, name: str, unit: nn.Module) -> None:
        forward = unit.forward

        def looked_at(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled() or name in self._named or _is_hooked():
                return forward(*args, **kwargs)
            self._named.add(name)
            return self._call(name, unit, forward, args, kwargs)

        unit.forward = looked_at
        self._wrapped.append(unit)

    def _call(
        self, name: str, unit: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        shape = shape_of(unit, args, kwargs)
        known = self._kinds.get(shape)
        if known is not None:
            known.members.append(name)
            return forward(*args, **kwargs)
        with OpProfiler() as profiler, _parts_watched(unit, profiler):
            out = forward(*args, **kwargs)
            profiler.given(_with_gradient(args, kwargs))
        self._kinds[shape] = Kind(profiler.profile, [name])
        return out


def _lies_in(name: str, module: str) -> bool:
    return not module or name.startswith(f"{module}.")


def _class_of(module: nn.Module) -> str:
    """FSDP2 gives modules a class of its own, named after theirs."""
    return type(module).__name__.removeprefix("FSDP")


def _profile(found: dict[str, Any]) -> ModuleProfile:
    parts = {name: _profile(part) for name, part in found.get("parts", {}).items()}
    return ModuleProfile(**{**found, "ops": [Op(**op) for op in found["ops"]], "parts": parts})


@contextmanager
def _parts_watched(unit: nn.Module, profiler: OpProfiler) -> Iterator[None]:
    """Tells the profiler which child of the unit runs."""
    wrapped = [(name, child) for name, child in unit.named_children() if not _has_own(child)]
    for name, child in wrapped:
        child.forward = _watched(name, child.forward, profiler)
    try:
        yield
    finally:
        for _, child in wrapped:
            del child.forward


def _has_own(module: nn.Module) -> bool:
    return "forward" in vars(module)


def _watched(name: str, forward: Callable[..., Any], profiler: OpProfiler) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        with profiler.inside(name, _with_gradient(args, kwargs)):
            return forward(*args, **kwargs)

    return watched


def _with_gradient(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """What a module is given with a gradient: recomputation starts from it."""
    return [
        x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad
    ]


def _is_hooked() -> bool:
    """Somebody decides already what is saved: the script checkpoints here itself."""
    top: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is not None and top(True) is not None
