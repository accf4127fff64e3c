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


def _checkpointing(
    module: nn.Module, forward: Callable[..., Any], entry: Activations
) -> Callable[..., Any]:
    """The module's `forward` as the entry wants it."""
    if entry.policy == "offload":

        def offloading(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*args, **kwargs)
            with saved_on_host():
                return forward(*args, **kwargs)

        return offloading
    contexts: Callable[[], Any] | None = None
    if entry.policy == "selective":
        rules = selective.Rules(dict(entry.keep), dict(entry.offload))
        contexts = functools.partial(_contexts, rules)
    # Asked at the first call: batch normalization may still be exchanged for one of many ranks.
    counting = functools.cache(functools.partial(statistics.that_count, module))

    def checkpointing(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        used = contexts
        compiling = torch.compiler.is_compiling()  # a compiler knows by itself what is done once
        if not compiling and counting():
            used = functools.partial(_not_counted, counting(), contexts)
        if not compiling and forgetful.is_usual():
            return forgetful.call(forward, args, kwargs, used)
        more: dict[str, Any] = {} if used is None else {"context_fn": used}
        return checkpoint(forward, *args, use_reentrant=False, **more, **kwargs)

    return checkpointing


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
            forward = module.forward
            setattr(module, MARK, vars(module).get("forward"))
            module.forward = _checkpointing(module, forward, entry)


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
