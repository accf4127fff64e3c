"""A plan as code and configuration to paste: into the shell, and into the script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from peakline._plan.document import WORLD_SIZE, Plan
from peakline._plan.levers import BY_KEY


def lines_to_paste(plan: Plan, file: str, words: Sequence[str] = ()) -> list[str]:
    """`words`: the script's own arguments, with the plan's values."""
    lines = []
    if WORLD_SIZE in plan.arguments:
        lines.append(f"# with a world size of {plan.arguments[WORLD_SIZE]}")
    if set(plan.arguments) - {WORLD_SIZE}:
        lines.append(f"# with the script's arguments: {shlex.join(words)}")
    by_hand = []
    for key, lever in BY_KEY.items():
        if key not in plan.levers:
            continue
        own = lever.paste(plan.levers[key])
        if lever.applied_by_checkpoint:
            by_hand += own
        else:
            lines += own
    with_optimizer = any(BY_KEY[key].applied_by_checkpoint for key in plan.levers)
    if plan.activations or with_optimizer:
        more = ", optimizer" if with_optimizer else ""
        made = "model and optimizer are" if with_optimizer else "the model is"
        lines += [f"# in the script, where {made} made:", "import peakline"]
        lines += [f'peakline.checkpoint(model, "{file}"{more})', *by_hand]
    return lines
