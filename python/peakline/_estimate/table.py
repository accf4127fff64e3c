"""The answer as text, at most 80 columns wide."""

from __future__ import annotations

import textwrap
from typing import Any

from peakline.run import format_size

_COLUMNS = 80
_BAR = 30
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_TOP_MODULES = 12


def render(answer: dict[str, Any], title: str) -> str:
    """`answer` is the JSON object; `title` the line above it."""
    title += "; partial" if answer.get("partial") else ""
    parts = [title, _head(answer), _categories(answer), _modules(answer), _steps(answer)]
    parts += [_other_devices(answer), _out_of_memory(answer), _unknown(answer)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(answer: dict[str, Any]) -> str:
    peak = answer["peak"]
    lines = [answer["device"] + (f"  {answer['gpu']}" if answer["gpu"] else "")]
    where = f"step {peak['step']}, {peak['phase']}"
    lines += _fact("Peak allocated", answer["peak_allocated"], where)
    for text in (peak["op"], f"in {peak['module']}" if peak["module"] else ""):
        if text:
            lines += _fact("", None, text)
    if answer.get("confidence"):
        lines += _fact("", None, _confidence(answer["confidence"]))
    lines += _fact("Peak reserved", answer["peak_reserved"], _reserved(answer))
    if answer.get("nccl_memory"):
        guessed = ", guessed" if answer["nccl_guessed"] else ""
        remark = f"{len(answer['communicators'])} communicators{guessed}"
        lines += _fact("With NCCL", answer["peak_with_nccl"], remark)
    lines += _fact("Memory limit", answer["memory_limit"], _verdict(answer))
    if answer.get("needed_reserved") is not None:
        lines += _fact("Would do", answer["needed_reserved"], "reserved, without the limit")
    return "\n".join(lines)


def _fact(label: str, size: int | None, remark: str) -> list[str]:
    value = "" if size is None else format_size(size)
    line = f"  {label:<16} {value:>10}   "
    return [line + _shorten(remark, _COLUMNS - len(line))]


def _confidence(parts: dict[str, int]) -> str:
    whole = max(1, sum(parts.values()))
    return ", ".join(f"{size / whole:.1%} {name}" for name, size in parts.items())


def _reserved(answer: dict[str, Any]) -> str:
    above = 100 * (answer["peak_reserved"] / max(1, answer["peak_allocated"]) - 1)
    remark = f"{above:.1f}% above allocated, {answer['segments']:,} segments"
    if answer["retries"]:
        remark += f", {answer['retries']:,} retries"
    return remark


def _verdict(answer: dict[str, Any]) -> str:
    spare = answer.get("memory_spare", answer["memory_limit"] - answer["peak_reserved"])
    if spare < 0 or not answer.get("fits", not answer["ooms"]):
        return "does not fit"
    return f"fits, {format_size(spare)} to spare"


def _categories(answer: dict[str, Any]) -> str:
    lines = ["By category at the peak"]
    for name, size in answer["by_category"].items():
        share = size / max(1, answer["peak_allocated"])
        lines.append(f"  {name:<24} {format_size(size):>10}  {share:6.1%}  {_bar(share)}".rstrip())
    return "\n".join(lines)


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _modules(answer: dict[str, Any]) -> str:
    rows = _top_modules(answer["modules"])
    if not rows:
        return ""
    names = ("Parameter", "Gradient", "Activation")
    table = [["  Module", "Total", *names, "Rest"]]
    above: list[str] = []  # paths of the shown modules around this one
    for shown, row in rows:
        while above and not row["path"].startswith(above[-1] + "."):
            above.pop()
        name = shown[len(above[-1]) + 1 :] if above else shown
        label = "  " * (len(above) + 1) + name
        above.append(row["path"])
        parts = [row["by_category"].get(name, 0) for name in names]
        sizes = [row["peak"], *parts, row["peak"] - sum(parts)]
        table.append([label, *(format_size(size) if size else "-" for size in sizes)])
    return "Top modules at the peak\n" + _aligned(table)


def _top_modules(modules: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The largest, in the order of the tree, without those that only pass on one below them."""
    held = {row["path"]: row["peak"] for row in modules if row["peak"]}
    passing = {path.rpartition(".")[0] for path, size in held.items() if _is_all(path, size, held)}
    rows = [row for row in modules if row["path"] in held and row["path"] not in passing]
    kept = _merged(rows)
    largest = sorted(kept, key=lambda entry: -int(entry[1]["peak"]))[:_TOP_MODULES]
    chosen = {path for path, _ in largest}
    return [entry for entry in kept if entry[0] in chosen]


def _is_all(path: str, size: int, held: dict[str, int]) -> bool:
    return "." in path and held.get(path.rpartition(".")[0]) == size


def _merged(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Neighbours of a numbered list that hold the same are one row: "layers.1-31, each"."""
    merged: list[tuple[str, dict[str, Any]]] = []
    runs: dict[str, tuple[int, int, int]] = {}  # by parent: the row's place, first and last number
    hidden = "\n"  # in no path
    for row in rows:
        path: str = row["path"]
        parent, _, name = path.rpartition(".")
        if path.startswith(hidden):
            continue
        number = int(name) if name.isdigit() else -1
        place, first, last = runs.get(parent, (0, 0, -9))
        if number == last + 1 and _alike(row, merged[place][1]):
            runs[parent] = (place, first, number)
            merged[place] = (f"{parent}.{first}-{number}, each", merged[place][1])
            hidden = path + "."
            continue
        if number >= 0:
            runs[parent] = (len(merged), number, number)
        merged.append((path, row))
    return merged


def _alike(row: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(row["peak"] == other["peak"] and row["by_category"] == other["by_category"])


def _aligned(table: list[list[str]]) -> str:
    columns = range(len(table[0]))
    widths = [max(len(row[column]) for row in table) for column in columns]
    rest = sum(widths[1:]) + 2 * (len(widths) - 1)
    widths[0] = min(widths[0], _COLUMNS - rest)
    lines = []
    for row in table:
        name = _shorten(row[0], widths[0])
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([f"{name:<{widths[0]}}", *cells]))
    return "\n".join(lines)


def _shorten(text: str, columns: int) -> str:
    """The middle gives way: both ends of a module's path matter."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    if len(text) <= columns:
        return text
    head = (columns - 1) // 2
    return text[:head] + "…" + text[len(text) - (columns - 1 - head) :]


def _steps(answer: dict[str, Any]) -> str:
    rows = answer["steps"][: answer["steps_completed"]]
    if len(rows) < 2:
        return ""
    table = [["Steps", "Peak allocated", "Peak reserved"]]
    for number, row in enumerate(rows, 1):
        reserved = row["peak_reserved"]
        sizes = [row["peak_allocated"], reserved]
        cells = ["-" if size is None else format_size(size) for size in sizes]
        table.append([f"  {number}", *cells])
    return _aligned(table)


def _other_devices(answer: dict[str, Any]) -> str:
    others = [row for row in answer["devices"] if row["device"] != "cpu"]
    if not others:
        return ""
    table = [["Other devices", "Peak allocated", "Peak reserved"]]
    for row in others:
        reserved = row["peak_reserved"]
        cells = [
            "-" if size is None else format_size(size) for size in (row["peak_allocated"], reserved)
        ]
        table.append([f"  {row['device']}", *cells])
    return _aligned(table)


def _out_of_memory(answer: dict[str, Any]) -> str:
    oom = answer.get("oom")
    if oom is None:
        return ""
    sentences = [
        oom["message"],
        oom["where"],
        "Alive then, by category: " + _list(oom["by_category"]) + ".",
        "By module: " + _list(oom["by_module"]) + ".",
        oom["fragmentation"],
        oom["advice"],
    ]
    lines = ["Out of memory"]
    for sentence in sentences:
        lines += _wrapped("  " + sentence) if sentence else []
    return "\n".join(lines)


def _list(sizes: dict[str, int]) -> str:
    parts = [f"{name} {format_size(size)}" for name, size in sizes.items()]
    return ", ".join(parts[:6]) or "nothing"


def _unknown(answer: dict[str, Any]) -> str:
    if not answer["warnings"]:
        return ""
    lines = ["What the estimate could not know"]
    for sentence in answer["warnings"]:
        lines += _wrapped(f"  - {sentence}")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    """Lines that stay under where the text begins."""
    indent = " " * (len(text) - len(text.lstrip(" -")))
    return textwrap.wrap(text, _COLUMNS, subsequent_indent=indent, break_on_hyphens=False)
