"""What `peakline plan` prints: the answer first, then the table, then what to paste."""

from __future__ import annotations

from typing import Any

from peakline import _C
from peakline._plan.arguments import Orders, usual_levers
from peakline._plan.paste import lines_to_paste
from peakline._plan.search import Outcome
from peakline._plan.smaller import Smaller
from peakline._plan.tried import Tried
from peakline.run import format_size

_MOST_ROWS = 12
_COLUMNS = 100


def of_plan(
    answer: dict[str, Any], outcome: Outcome, orders: Orders, budget: int, less: Smaller | None
) -> str:
    gpu = outcome.base.answer["gpu"]
    limit = f"{format_size(budget)} on {gpu}"
    lines = _headline(outcome, limit, budget)
    rows = outcome.pareto(budget)
    if rows:
        lines += ["", "What fits, fastest first", *_table(rows, outcome)]
    if outcome.chosen is None:
        lines += ["", *_what_would(less, outcome, orders, budget)]
    lines += _dropped(answer["cannot"])
    if orders.levers != usual_levers():  # they were asked for by name
        lines += [f"{key}: the script has nothing that it could change." for key in outcome.idle]
    lines += _unused(outcome.without_effect())
    if outcome.chosen is not None and not outcome.chosen.plan.is_empty:
        lines += ["", "To have it", *(f"  {line}" for line in _how(outcome, orders))]
    tried = _C.counted(len(outcome.tried), "plan") + " estimated"
    if answer["remembered"]:
        tried += f", {answer['remembered']} of them remembered"
    lines += ["", f"{tried}; times are estimates of {gpu}, not measurements."]
    return "\n".join(lines) + "\n"


def _headline(outcome: Outcome, limit: str, budget: int) -> list[str]:
    base, chosen = outcome.base, outcome.chosen
    if chosen is None:
        floor = outcome.floor
        over = format_size(floor.needs - budget)
        what = "; ".join(floor.plan.changes()) or "the script as it is"
        return [
            f"Nothing fits {limit}: it is {over} short.",
            f"The least that was found needs {format_size(floor.needs)}: {what}.",
            f"{_as_it_is(base, 'The script as it is')} reserves {format_size(base.reserved)}.",
        ]
    if chosen.plan.is_empty:
        return [f"It fits {limit} as it is, with {format_size(base.reserved)} reserved."]
    changes = "; ".join(chosen.plan.changes())
    lines = [f"It fits {limit} with: {changes}.", _against(chosen, base, budget)]
    return lines


def _what_would(less: Smaller | None, outcome: Outcome, orders: Orders, budget: int) -> list[str]:
    """Nothing fits: what would, or how to ask for it."""
    if less is None:
        return [
            "No argument of the script looks like its batch or its length. If it has one, name it:",
            f"  {orders.search_command('--vary', 'NAME=A..B')}",
        ]
    name, now = less.size.name, less.size.value
    if less.found:
        head = f"What would fit with a smaller {name}, which is {now} now"
        return [head, *_table(less.found, outcome), "To find the fastest", f"  {less.command}"]
    if less.least is None:
        return [f"The script cannot be estimated with a smaller {name}."]
    value = less.least.plan.arguments[name]
    short = format_size(less.least.needs - budget)
    return [f"Not even {name} {value} would fit: it is {short} short ({name} is {now} now)."]


def _as_it_is(base: Tried, words: str) -> str:
    """What others are compared with: where arguments vary, the first values of them."""
    given = ", ".join(f"{name} {value}" for name, value in base.plan.arguments.items())
    return f"{given} alone" if given else words


def _against(chosen: Tried, base: Tried, budget: int) -> str:
    then = f"{format_size(chosen.reserved)} reserved, {chosen.step_ms:.1f} ms a step"
    if chosen.plan == base.plan:
        return f"{then}."
    now = f"{_as_it_is(base, 'as it is')} {format_size(base.reserved)} and {base.step_ms:.1f} ms"
    remark = " (does not fit)" if base.needs > budget else ""
    if base.throughput:
        change = chosen.throughput / base.throughput - 1
        return f"{then}; {now}{remark}: {change:+.1%} {chosen.unit}."
    return f"{then}; {now}{remark}."


def _table(rows: list[Tried], outcome: Outcome) -> list[str]:
    head = ["", "reserved", "step", rows[0].unit, "changes"]
    cells = [head]
    for one in rows[:_MOST_ROWS]:
        mark = "*" if one is outcome.chosen else ""
        speed = f"{one.throughput:,.0f}" if one.throughput >= 100 else f"{one.throughput:.1f}"
        changes = "; ".join(one.plan.changes()) or "as it is"
        cells.append([mark, format_size(one.reserved), f"{one.step_ms:.1f} ms", speed, changes])
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    lines = []
    for row in cells:
        left = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        lines.append(f"  {left}  {_shortened(row[4], _COLUMNS - len(left) - 4)}".rstrip())
    if len(rows) > _MOST_ROWS:
        lines.append(f"  {_C.counted(len(rows) - _MOST_ROWS, 'slower one')}; --json has all")
    return lines


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _dropped(cannot: list[dict[str, Any]]) -> list[str]:
    lines = [f"  {'; '.join(one['changes'])}: {one['why']}" for one in cannot[:4]]
    return ["", "What the script cannot have", *lines] if lines else []


def _unused(names: list[str]) -> list[str]:
    lines = [f"{name} changed nothing: the script seems to make no use of it." for name in names]
    return ["", *lines] if lines else []


def _how(outcome: Outcome, orders: Orders) -> list[str]:
    chosen = outcome.chosen
    assert chosen is not None
    file = orders.output or "plan.json"
    names = (outcome.called, outcome.together)
    lines = lines_to_paste(chosen.plan, file, orders.script_words(chosen.plan), *names)
    if not orders.output:
        lines.append(f"# peakline plan … -o {file} writes the plan")
    lines.append(f"# proof: {orders.command(chosen.plan, file)}")
    return lines
