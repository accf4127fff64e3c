"""What `peakline fit` prints: the value first, then how it was found."""

from __future__ import annotations

from typing import Any

from peakline import _C
from peakline.run import format_size


def of_fit(answer: dict[str, Any]) -> str:
    lines = _frontier(answer) if answer.get("frontier") is not None else _one(answer)
    lines += _exceptions(answer["exceptions"])
    tried = _C.counted(len(answer["tries"]), "value") + " tried"
    if answer["remembered"]:
        tried += f", {answer['remembered']} of them remembered from an earlier search"
    lines.append(tried + ".")
    return "\n".join(lines) + "\n"


def _exceptions(found: list[dict[str, int]]) -> list[str]:
    if not found:
        return []
    without, fits = found[0]["does_not_fit"], found[0]["fits"]
    text = f"Not monotonic: {without} does not fit, and {fits} does"
    others = len(found) - 1
    return [text + (f"; {_C.counted(others, 'more case')} of that kind." if others else ".")]


def _limit(answer: dict[str, Any]) -> str:
    return f"{format_size(answer['memory_limit'] or 0)} on {answer['gpu']}"


def _one(answer: dict[str, Any]) -> list[str]:
    (name,) = answer["vary"]
    value = answer["value"]
    if value is None:
        return [f"No {name} fits {_limit(answer)}: not even {answer['tries'][0][name]}."]
    over = [row[name] for row in answer["tries"] if not row["fits"] and row[name] > value]
    end = f"; {min(over)} does not." if over else ", the largest that was asked for."
    lines = [
        f"{name} {value} fits {_limit(answer)}, with {format_size(answer['peak_reserved'])} "
        f"reserved{end}"
    ]
    training = answer["training_value"]
    if training != value:
        lines.append(
            f"Training alone fits up to {training}: what runs out above {value} is the evaluation, "
            "which may have a batch of its own."
        )
    return lines


def _frontier(answer: dict[str, Any]) -> list[str]:
    names = answer["vary"]
    if not answer["frontier"]:
        return [f"No {' and '.join(names)} fit {_limit(answer)}."]
    rows = [[str(point[name]) for name in names] for point in answer["frontier"]]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = [f"The largest that fit {_limit(answer)}:"]
    for row in (names, *rows):
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  " + "  ".join(cells))
    return lines
