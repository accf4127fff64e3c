"""`peakline.checkpoint`: a plan, applied in real training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import nn
from torch.optim.optimizer import Optimizer

from peakline import _checks
from peakline._plan import recompute
from peakline._plan.document import Plan, load, parse
from peakline._plan.levers import optimizer_implementation, optimizer_state
from peakline._plan.levers.optimizer_in_backward import InBackward

M = TypeVar("M", bound=nn.Module)


def checkpoint(
    model: M,
    plan: Plan | Mapping[str, Any] | str | os.PathLike[str],
    optimizer: Optimizer | None = None,
) -> M:
    """Changes `model` in place as the plan says, and gives it back.

    `plan` is what `peakline plan -o` wrote, a dict of it, or a Plan of `peakline.plan`. Modules
    keep their names and classes, so state_dict() stays as it is. Call it before the first call of a
    compiled model, and before or after fully_shard. Random numbers are the same in recomputation as
    in forward, so losses are those of plain training. With `optimizer`, the plan's changes of it
    are made, too. The other levers (allocator, FSDP2, the script's arguments) are for the script.

    A plan that names modules that the model does not have is refused with a ValueError, and nothing
    is changed.
    """
    _checks.of_kind(model, nn.Module, "checkpoint(model)", "a module")
    if optimizer is not None:
        _checks.of_kind(optimizer, Optimizer, "checkpoint(optimizer=…)", "an optimizer")
    found = _as_plan(plan)
    recompute.wrap(model, found)
    if optimizer is not None:
        try:
            _change(optimizer, found)
        except ValueError:
            recompute.unwrap(model)
            raise
    return model


def _as_plan(plan: Plan | Mapping[str, Any] | str | os.PathLike[str]) -> Plan:
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, Mapping):
        return parse(dict(plan))
    return load(_checks.path(plan, "checkpoint(plan)", "a plan, a dict of one, or a path"))


def _change(optimizer: Optimizer, plan: Plan) -> None:
    kind = plan.levers.get("optimizer.implementation")
    if kind is not None:
        optimizer_implementation.use(optimizer, kind)
    if plan.levers.get("optimizer.state") == "host":
        optimizer_state.keep_on_host(optimizer)
    if plan.levers.get("optimizer.in_backward"):
        InBackward(optimizer).add_groups()  # the parameters' hooks keep it
