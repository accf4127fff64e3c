"""Modules whose activations are recomputed or offloaded: what `peakline.checkpoint` does.

A module keeps its class and its place; only its `forward` becomes one that checkpoints. torch's own
checkpoint does the work, without reentrance and with the random state preserved.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from peakline._plan import names
from peakline._plan.document import Activations, Calls, Plan
from peakline._plan.errors import PlanError
from peakline._plan.offload import saved_on_host
from peakline._plan.offloading_contexts import offloading_contexts

MARK = "_peakline_plan"  # an attribute of modules that a plan has changed
_RANDOM_APART = (
    "ops that draw random numbers are kept together or recomputed together, and the plan keeps "
    "some of them: {kept} and not {other}"
)


def draws(op: Any, args: Any, kwargs: Any) -> bool:
    """Whether this call takes random numbers: attention without dropout takes none."""
    if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ()):
        return False
    for place, argument in enumerate(op._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p", 0)
            return bool(given)
    return True


class Choice:
    """Which calls of which ops are kept: asked once for each op, in the order of forward."""

    def __init__(self, keep: Mapping[str, Calls], offload: Mapping[str, Calls]) -> None:
        self._lists = {"keep": keep, "offload": offload}
        self._called: Counter[str] = Counter()
        self._random: dict[str, str] = {}  # what happened to random ops: an op for each

    def of(self, op: Any, args: Any, kwargs: Any) -> str:
        """ "keep", "offload" or "recompute", for the next call of `op`."""
        name = str(op)
        number = self._called[name]
        self._called[name] += 1
        found = "recompute"
        for action, ops in self._lists.items():
            if name in ops:
                calls = ops[name]
                if calls is None or number in calls:
                    found = action
        if draws(op, args, kwargs):
            self._check_random(name, found)
        return found

    def _check_random(self, name: str, action: str) -> None:
        self._random.setdefault("recompute" if action == "recompute" else "keep", name)
        if len(self._random) == 2:
            raise RuntimeError(
                _RANDOM_APART.format(kept=self._random["keep"], other=self._random["recompute"])
            )


_POLICY = {
    "keep": CheckpointPolicy.MUST_SAVE,
    "offload": getattr(CheckpointPolicy, "MUST_CPU_OFFLOAD", CheckpointPolicy.MUST_SAVE),
    "recompute": CheckpointPolicy.PREFER_RECOMPUTE,
}


def _contexts(keep: Mapping[str, Calls], offload: Mapping[str, Calls]) -> Any:
    """A pair of contexts for one call of a module: forward's and the recomputation's."""
    choices = {False: Choice(keep, offload), True: Choice(keep, offload)}

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return _POLICY[choices[context.is_recompute].of(op, args, kwargs)]

    if offload and not torch.compiler.is_compiling():
        return offloading_contexts(choices[False].of)
    return create_selective_checkpoint_contexts(policy)


def _checkpointing(forward: Callable[..., Any], entry: Activations) -> Callable[..., Any]:
    """`forward` as the entry wants it."""
    if entry.policy == "offload":

        def offloading(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*args, **kwargs)
            with saved_on_host():
                return forward(*args, **kwargs)

        return offloading
    more: dict[str, Any] = {}
    if entry.policy == "selective":
        more["context_fn"] = functools.partial(_contexts, dict(entry.keep), dict(entry.offload))

    def checkpointing(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **more, **kwargs)

    return checkpointing


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
            module.forward = _checkpointing(forward, entry)


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
