"""The ranks of a job that were estimated, as text."""

from __future__ import annotations

from typing import Any

from peakline.run import format_size

_SHOWN = 16


def render(answer: dict[str, Any]) -> str:
    """Below the answer of the largest rank. Empty when one rank was asked for."""
    rows = answer.get("ranks", [])
    if not rows:
        return ""
    lines = [f"{'Ranks, one of each kind':<26}{'Peak allocated':>16}{'Peak reserved':>16}"]
    shown = rows if len(rows) <= _SHOWN else sorted(rows, key=_size)[-_SHOWN:]
    for row in shown:
        sizes = [format_size(row[key] or 0) for key in ("peak_allocated", "peak_reserved")]
        mark = "  the largest" if row["rank"] == answer["rank"] else ""
        name = f"  rank {row['rank']:,}"
        lines.append(f"{name:<26}{sizes[0]:>16}{sizes[1]:>16}{mark}")
    if len(shown) < len(rows):
        lines.append(f"  {len(rows) - len(shown):,} smaller ones")
    return "\n" + "\n".join(lines) + "\n"


def _size(row: dict[str, Any]) -> int:
    return int(row["peak_reserved"] or 0)
