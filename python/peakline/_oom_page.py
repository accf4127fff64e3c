"""The page that explains an OOM: plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from peakline._holders import NOT_FOUND
from peakline._oom_facts import OomFacts, Segment
from peakline._stacks import own_place
from peakline.run import format_size

_WIDTH, _ROW, _GAP = 960, 14, 4  # of the picture, in pixels
_MOST_SEGMENTS = 60
_ROWS = 15

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --used: #4477aa; --free: #ee8866; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 980px; margin: 2em auto; padding: 0 1em;
       overflow-wrap: anywhere; }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .2em .6em; border-bottom: 1px solid var(--line);
         overflow-wrap: anywhere; vertical-align: top }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
code, pre { font: 13px/1.5 ui-monospace, monospace } pre { overflow-x: auto; white-space: pre-wrap }
small { opacity: .75 } svg { max-width: 100%; height: auto }
"""


def render(facts: OomFacts) -> str:
    failure = facts.failure
    parts = [
        f"<h1>Out of memory on {_text(facts.device)}</h1>",
        f"<p>{_asked(facts)}</p>",
        _asked_by(failure),
        f"<pre>{_text(facts.message)}</pre>",
        _stack("Which line asked", failure["stack"]),
        _stack("In backward: the line of the forward call", failure["forward"]),
        "<h2>What would have helped</h2>",
        _advice(facts.advice),
        _growth(facts.growth),
        _lines(failure["lines"]),
        _table("Alive, by category", ("Category",), _pairs(failure["by_category"])),
        _table("Alive, by module", ("Module, itself",), _pairs(failure["by_module"])),
        _holders(facts),
        _fragmentation(facts),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Out of memory</title><style>{_STYLE}</style></head><body>"
        + "\n".join(filter(None, parts))
        + "</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _asked(facts: OomFacts) -> str:
    failure = facts.failure
    where = [f"step {failure['step']}", failure["phase"], failure["module"], failure["op"]]
    limit = "" if facts.limit is None else f" of {format_size(facts.limit)}"
    return (
        f"<b>{format_size(failure['requested'])}</b> were asked for in "
        f"{_text(', '.join(part for part in where if part))}. {format_size(failure['allocated'])} "
        f"were allocated and {format_size(failure['reserved'])} reserved{limit}."
    )


def _asked_by(failure: dict[str, Any]) -> str:
    """The program's own line: stacks below begin with those of torch."""
    caller, forward = own_place(failure["stack"]), own_place(failure["forward"])
    if forward is not None and caller is not None:
        return f"<p>The backward of {_place(forward)}<br>asked, called by {_place(caller)}</p>"
    return "" if caller is None else f"<p>{_place(caller)}<br>asked.</p>"


def _place(place: dict[str, Any]) -> str:
    text = f"<br><small><code>{_text(place['text'])}</code></small>" if place["text"] else ""
    line = f":{place['line']}" if place["line"] else ""  # none of a function of C++
    return f"<code>{_text(place['file'])}{line}</code> {_text(place['function'])}{text}"


def _stack(title: str, stack: list[dict[str, Any]]) -> str:
    if not stack:
        return ""
    rows = "".join(f"<li>{_place(place)}</li>" for place in stack)
    return f"<h2>{title}</h2><p>The innermost call first.</p><ol>{rows}</ol>"


def _advice(advice: list[str]) -> str:
    if not advice:
        return (
            "<p>No other setting of the allocator lets this allocation pass: the sensible ones "
            "were tried on this run. Something has to be smaller.</p>"
        )
    rows = "".join(f"<li>{_text(sentence)}</li>" for sentence in advice)
    return f"<p>Tried on this run, on a simulated allocator:</p><ul>{rows}</ul>"


def _growth(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows[:_ROWS]:
        where = _place(row["place"]) if row["place"] else _text(f"{row['op']} {row['module']}")
        if row["holder"]:
            where += f"<br><small>held by <code>{_text(row['holder'])}</code></small>"
        cells.append((where, format_size(row["per_step"]), format_size(row["kept"])))
    return _table("Grows with every step", ("Kept from", "Each step", "By now"), cells)


def _lines(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows[:_ROWS]:
        caller = row["called_from"]
        note = "" if caller is None else f"<br><small>backward, from {_place(caller)}</small>"
        cells.append((_place(row) + note, row["allocations"], format_size(row["at_peak"])))
    return _table("Alive, by line", ("Line", "Blocks", "Bytes"), cells)


def _pairs(sizes: dict[str, int]) -> list[tuple[str, str]]:
    return [
        (_text(name or "(outside modules)"), format_size(size))
        for name, size in list(sizes.items())[:_ROWS]
    ]


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    body = ""
    for row in rows:
        numbers = "".join(f'<td class="n">{cell}</td>' for cell in row[1:])
        body += f"<tr><td>{row[0]}</td>{numbers}</tr>"
    if not body:
        return ""
    head = f"<th>{columns[0]}</th>"
    names = columns[1:] or ("Bytes",)
    head += "".join(f'<th class="n">{name}</th>' for name in names)
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"


def _holders(facts: OomFacts) -> str:
    rows = [
        (
            f"<code>{_text(held.path or NOT_FOUND)}</code><br>"
            f"<small>{_text(held.shape)} {_text(held.dtype)}</small>",
            format_size(held.bytes),
        )
        for held in facts.holders
    ]
    return _table(
        "The largest tensors that are not parameters, and who holds them", ("Held by",), rows
    )


def _fragmentation(facts: OomFacts) -> str:
    if not facts.segments:
        return ""
    free = sum(size for one in facts.segments for size, in_use in one.blocks if not in_use)
    largest = sorted(facts.segments, key=lambda segment: -segment.size)[:_MOST_SEGMENTS]
    left = len(facts.segments) - len(largest)
    more = f" The {left} smallest segments are not drawn." if left > 0 else ""
    return (
        "<h2>The allocator's segments</h2>"
        f"<p>{format_size(free)} lay free inside segments, the largest piece "
        f"{format_size(facts.largest_free)}. Blue is in use, orange is free.{more}</p>"
        + _picture(largest)
    )


def _picture(segments: list[Segment]) -> str:
    widest = max(segment.size for segment in segments)
    height = len(segments) * (_ROW + _GAP)
    bars = []
    for row, segment in enumerate(segments):
        at = 0
        for size, in_use in segment.blocks:
            x, width = _WIDTH * at / widest, _WIDTH * size / widest
            colour = "var(--used)" if in_use else "var(--free)"
            bars.append(
                f'<rect x="{x:.1f}" y="{row * (_ROW + _GAP)}" width="{max(width, 0.3):.1f}" '
                f'height="{_ROW}" fill="{colour}"/>'
            )
            at += size
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" '
        f'aria-label="Free and used memory of {len(segments)} segments">' + "".join(bars) + "</svg>"
    )
