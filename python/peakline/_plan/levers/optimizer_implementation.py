"""How the optimizer goes over its parameters: all at once, in one kernel, or one at a time.

`foreach` holds temporaries as large as the parameters; `fused` holds none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim.optimizer import Optimizer

from peakline._plan.errors import PlanError
from peakline._plan.facts import Facts
from peakline._plan.levers.lever import Lever, one_of
from peakline._plan.stage import Stage

FLAGS = {
    "fused": {"fused": True, "foreach": False},
    "foreach": {"fused": False, "foreach": True},
    "single": {"fused": False, "foreach": False},
}


def flags_of(kind: str, defaults: dict[str, Any], owner: str) -> dict[str, Any]:
    """The optimizer's own flags for `kind`; PlanError where it has none."""
    wanted = {name: value for name, value in FLAGS[kind].items() if name in defaults}
    needed = "fused" if kind == "fused" else "foreach"
    if needed not in wanted:
        raise PlanError(f"{owner} has no '{needed}', so it cannot be made '{kind}'")
    return wanted


def use(optimizer: Optimizer, kind: str) -> None:
    """Changes an optimizer that has been made."""
    flags = flags_of(kind, optimizer.defaults, type(optimizer).__name__)
    optimizer.defaults.update(flags)
    for group in optimizer.param_groups:
        group.update(flags)
    if "fused" in flags and hasattr(optimizer, "_step_supports_amp_scaling"):
        optimizer._step_supports_amp_scaling = flags["fused"]


def _apply(kind: str, stage: Stage) -> None:
    made = Optimizer.__init__

    def init(self: Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        try:
            defaults = {**defaults, **flags_of(kind, defaults, type(self).__name__)}
        except PlanError as error:
            stage.refuse(str(error))
        made(self, params, defaults)
        for group in self.param_groups:
            group.update(flags_of(kind, defaults, type(self).__name__))

    stage.patches.set(Optimizer, "__init__", init)


def _tries(facts: Facts) -> Sequence[str]:
    if not facts.optimizers:
        return []
    kinds = [kind for kind in FLAGS if all(kind in one.kinds for one in facts.optimizers)]
    return [kind for kind in kinds if any(one.kind != kind for one in facts.optimizers)]


def _paste(kind: str) -> list[str]:
    flags = ", ".join(f"{name}={value}" for name, value in FLAGS[kind].items() if value)
    flags = flags or "foreach=False"
    return [f'# {flags} where the optimizer is made does the same as "implementation" of the plan']


LEVER = Lever(
    key="optimizer.implementation",
    takes="'fused', 'foreach' or 'single'",
    check=one_of(*FLAGS),
    changes=lambda kind: (
        f"{kind} optimizer" if kind != "single" else "optimizer one tensor at a time"
    ),
    paste=_paste,
    apply=_apply,
    tries=_tries,
    applied_by_checkpoint=True,
)
