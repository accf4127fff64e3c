"""torch.compile's own budget for what forward leaves for backward, as a share of what it would be.

Which share needs how much is for the compiler to say, and less of it need not need less: as any
plan it is estimated, and taken for what it turns out to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peakline._plan.facts import Facts
from peakline._plan.levers.lever import Lever
from peakline._plan.stage import Stage

_SHARES = (0.8, 0.5, 0.2)


def _check(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _apply(value: float, stage: Stage) -> None:
    import torch._functorch.config as config

    changed = config.patch(activation_memory_budget=float(value))
    changed.__enter__()
    stage.patches.on_restore(lambda: changed.__exit__(None, None, None))


def _tries(facts: Facts) -> Sequence[float]:
    return _SHARES if facts.compiles else []


LEVER = Lever(
    key="compile.activation_memory_budget",
    takes="a share from 0 to 1",
    check=_check,
    changes=lambda value: f"activation_memory_budget {value:g}",
    paste=lambda value: [
        "# in the script, before the compiled model is called:",
        "import torch._functorch.config",
        f"torch._functorch.config.activation_memory_budget = {value:g}",
    ],
    apply=_apply,
    tries=_tries,
    beside_activations=False,
)
