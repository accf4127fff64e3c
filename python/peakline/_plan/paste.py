"""A plan as code and configuration to paste into the script."""

from __future__ import annotations

from peakline._plan.document import Plan
from peakline._plan.levers import BY_KEY


def lines_to_paste(plan: Plan, file: str) -> list[str]:
    lines = [f"--{name} {value}" for name, value in plan.arguments.items()]
    calls = bool(plan.activations)
    with_optimizer = False
    for key, lever in BY_KEY.items():
        if key not in plan.levers:
            continue
        own = lever.paste(plan.levers[key])
        if any(line.startswith("peakline.checkpoint(") for line in own):
            with_optimizer = True
        else:
            lines += own
    if calls or with_optimizer:
        more = ", optimizer" if with_optimizer else ""
        lines += ["import peakline", f'peakline.checkpoint(model, "{file}"{more})']
    return lines
