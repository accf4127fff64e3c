"""The memory of a pull request beside its base's, as a comment in Markdown.

    python memory_comment.py base.peak head.peak --tolerance 1 -o comment.md

Exits with 0, or with 3 when what is reserved grew by more than --tolerance percent: the gate. The
recordings are estimates (`peakline estimate -o`), so no GPU is needed, and the same code gives the
same bytes every time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "<!-- peakline -->"  # so that a workflow finds its earlier comment
ROWS = 8


def size(count: int) -> str:
    value = float(abs(count))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{'-' if count < 0 else ''}{value:.4g} {unit}"


def signed(count: int) -> str:
    return size(count) if count <= 0 else "+" + size(count)


def growth(row: dict[str, int]) -> float:
    """In percent of what it was."""
    return 100 * row["change"] / row["before"] if row["before"] else 0.0


def table(title: str, rows: list[dict[str, Any]]) -> str:
    lines = [f"| {title} | Base | This | Change |", "|---|--:|--:|--:|"]
    for row in rows[:ROWS]:
        cells = size(row["before"]), size(row["after"]), signed(row["change"])
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def comment(diff: dict[str, Any], verdict: str) -> str:
    totals = [
        {"name": name, **diff[key]}
        for name, key in (
            ("Peak allocated", "peak_allocated"),
            ("Peak reserved", "peak_reserved"),
        )
        if diff.get(key)
    ]
    gpu = diff["after"].get("gpu") or diff["after"]["device"]
    parts = [MARK, f"### GPU memory: {verdict}", table(f"On {gpu}", totals)]
    if diff["categories"]:
        parts.append(table("By category at the peak", diff["categories"]))
    if diff["modules"]:
        modules = table("Module, itself", diff["modules"])
        parts.append(f"<details><summary>By module</summary>\n\n{modules}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("head")
    parser.add_argument("--tolerance", type=float, default=1.0, help="percent that it may grow")
    parser.add_argument("-o", "--output", type=Path, default=Path("comment.md"))
    given = parser.parse_args()
    command = ["peakline", "diff", given.base, given.head, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        return done.returncode
    diff = json.loads(done.stdout)
    counts = diff.get("peak_reserved") or diff["peak_allocated"]
    percent = growth(counts)
    if counts["change"] == 0:
        verdict = "unchanged"
    else:
        verdict = f"{signed(counts['change'])} ({percent:+.1f}%)"
    too_much = percent > given.tolerance
    if too_much:
        verdict += f", more than the {given.tolerance:g}% that are accepted"
    given.output.write_text(comment(diff, verdict))
    return 3 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
