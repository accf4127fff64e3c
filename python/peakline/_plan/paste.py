"""A plan as code and configuration to paste: into the shell, and into the script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from peakline._plan.document import WORLD_SIZE, Plan
from peakline._plan.levers import BY_KEY
from peakline._plan.probe import Named
from peakline._script_variables import Together


def lines_to_paste(
    plan: Plan,
    file: str,
    words: Sequence[str] = (),
    called: Named | None = None,
    together: Together | None = None,
) -> list[str]:
    """`words`: the script's own arguments, with the plan's values. `called`, `together`: what the
    script calls its model, and that with its optimizer."""
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
        usual = Named("model"), Together("model", "optimizer", "")
        one, both = called or usual[0], together or usual[1]
        given = [both.model if with_optimizer else one.expression, f'"{file}"']
        given += [both.optimizer] if with_optimizer else []
        place = both.place if with_optimizer else one.place
        lines += [f"# in the script, {place or _unknown(plan, with_optimizer)}:", "import peakline"]
        lines += [f"peakline.checkpoint({', '.join(given)})", *by_hand]
    return lines


def _unknown(plan: Plan, with_optimizer: bool) -> str:
    made = "and its optimizer are" if with_optimizer else "is"
    return f"where the {plan.model or 'model'} {made} made"
