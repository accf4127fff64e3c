"""One step of a program, looked at closely: its layers, their ops, and which levers it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from peakline._plan.facts import FactFinder, Facts, OptimizerFacts, ShardFacts
from peakline._plan.op_profile import ModuleProfile, Op, OpProfiler
from peakline._plan.units import shape_of, units_of
from peakline._script_sizes import Size


@dataclass
class Kind:
    """Layers that do the same: one of them was looked at."""

    profile: ModuleProfile
    members: list[str] = field(default_factory=list)  # names, in the order of forward


@dataclass
class Found:
    """What a probe brings back."""

    model: str = ""
    kinds: list[Kind] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    pcie_gbps: float = 0.0

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
        return Found(found["model"], kinds, Facts(**facts), found["pcie_gbps"])


class Probe:
    def __init__(self) -> None:
        self._finder = FactFinder()
        self._models: list[_Model] = []

    @contextmanager
    def before(self, gpu: Any) -> Iterator[None]:
        gpu.on_model(self._met)
        try:
            with self._finder.watching():
                yield
        finally:
            for model in self._models:
                model.leave()

    def _met(self, model: nn.Module) -> None:
        if any(parameter.requires_grad for parameter in model.parameters()):
            self._models.append(_Model(model))

    def found(self) -> Found:
        largest = max(self._models, key=lambda model: model.saved, default=None)
        if largest is None:
            return Found(facts=self._finder.facts)
        return Found(largest.name, largest.kinds(), self._finder.facts)


class _Model:
    def __init__(self, model: nn.Module) -> None:
        held = getattr(model, "module", None)  # by DDP
        inner = held if isinstance(held, nn.Module) else model
        self.name = type(inner).__name__.removeprefix("FSDP")
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
