"""Modules whose activations are recomputed or offloaded: what `peakline.checkpoint` does.

A module keeps its class and its place; only its `forward` becomes one that checkpoints, without
reentrance and with the random state preserved: `forgetful.py` where it can, else torch's own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from peakline._plan import forgetful, names, selective, statistics
from peakline._plan.document import Activations, Plan
from peakline._plan.errors import PlanError
from peakline._plan.offload import saved_on_host

MARK = "_peakline_plan"  # an attribute of modules that a plan has changed

_POLICY = {
    "keep": CheckpointPolicy.MUST_SAVE,
    "offload": getattr(CheckpointPolicy, "MUST_CPU_OFFLOAD", CheckpointPolicy.MUST_SAVE),
    "recompute": CheckpointPolicy.PREFER_RECOMPUTE,
}


def _contexts(rules: selective.Rules) -> Any:
    """A pair of contexts for one call of a module: forward's and the recomputation's."""
    if not torch.compiler.is_compiling():
        return selective.contexts(rules)
    # Compiled programs know torch's own contexts.
    choices = {False: selective.Choices(rules), True: selective.Choices(rules)}

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return _POLICY[choices[context.is_recompute].of(op, args, kwargs)[0]]

    return create_selective_checkpoint_contexts(policy)


class _Planned:
    """One module as its entry wants it.

    No closure: a model that is copied must run the copy's own layers, and one that is saved as a
    whole keeps its plan.
    """

    def __init__(self, module: nn.Module, entry: Activations) -> None:
        self.module = module
        self.forward: Callable[..., Any] = module.forward
        self.entry = entry
        self.rules = _rules(entry)
        self._counting: list[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "forward": self.forward, "entry": self.entry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.rules = _rules(self.entry)
        self._counting = None

    def counting(self) -> list[Any]:
        """Asked at the first call: batch normalization may still be exchanged for one of many
        ranks."""
        if self._counting is None:
            self._counting = statistics.that_count(self.module)
        return self._counting


def _rules(entry: Activations) -> selective.Rules | None:
    if entry.policy != "selective":
        return None
    return selective.Rules(dict(entry.keep), dict(entry.offload))


def _offloading(planned: _Planned, *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return planned.forward(*args, **kwargs)
    with saved_on_host():
        return planned.forward(*args, **kwargs)


def _checkpointing(planned: _Planned, *args: Any, **kwargs: Any) -> Any:
    forward = planned.forward
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    used = None if planned.rules is None else functools.partial(_contexts, planned.rules)
    compiling = torch.compiler.is_compiling()  # a compiler knows by itself what is done once
    if not compiling and planned.counting():
        used = functools.partial(_not_counted, planned.counting(), used)
    if not compiling and forgetful.is_usual():
        return forgetful.call(forward, args, kwargs, used)
    more: dict[str, Any] = {} if used is None else {"context_fn": used}
    return checkpoint(forward, *args, use_reentrant=False, **more, **kwargs)


def _not_counted(modules: Any, contexts: Callable[[], Any] | None) -> Any:
    first, again = contexts() if contexts else (contextlib.nullcontext(), contextlib.nullcontext())
    return first, statistics.NotCounted(modules, again)


def find(model: nn.Module, plan: Plan) -> dict[str, nn.Module]:
    """The plan's modules in the model; PlanError names one that is not there."""
    known = {names.as_written(path): module for path, module in model.named_modules() if path}
    inner = "module."  # DDP, DataParallel and FSDP1 hold the model by this name
    known |= {path.removeprefix(inner): module for path, module in known.items()}
    found = {}
    for entry in plan.activations:
        for name in entry.modules:
            if name not in known:
                meant = names.closest(name, list(known))
                hint = f"; did you mean {meant}?" if meant else ""
                kind = type(model).__name__
                raise PlanError(f"{kind} has no module {name}, which the plan names{hint}")
            found[name] = known[name]
    return found


def wrap(model: nn.Module, plan: Plan) -> None:
    """Changes the plan's modules in place. All of them are there, or none is changed."""
    modules = find(model, plan)
    for name, module in modules.items():
        if MARK in vars(module):
            raise PlanError(f"{name} has been planned before; undo it first")
    for entry in plan.activations:
        for name in entry.modules:
            module = modules[name]
            planned = _Planned(module, entry)
            setattr(module, MARK, vars(module).get("forward"))
            act = _offloading if entry.policy == "offload" else _checkpointing
            module.forward = functools.partial(act, planned)


def unwrap(model: nn.Module) -> None:
    """Undoes it."""
    for module in model.modules():
        if MARK in vars(module):
            own = vars(module)[MARK]
            delattr(module, MARK)
            if own is None:
                del module.forward
            else:
                module.forward = own
