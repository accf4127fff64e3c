"""What the host itself needs: tensors in its memory, and what of them is pinned."""

from __future__ import annotations

from typing import Any

from peakline.run import format_size

_WORTH_A_LINE = 1 << 30


def complete(answer: dict[str, Any], pinned: int, limit: int | None) -> None:
    """Adds the host's side to the answer; `limit`: what the host has, when it was said."""
    answer["host_pinned_peak"] = pinned
    answer["host_memory_limit"] = limit
    need = answer["host_peak"]
    if limit is None or need <= limit:
        return
    answer["fits"] = False
    answer["warnings"].insert(
        0,
        f"does not fit the host's {format_size(limit)}: its tensors need {format_size(need)}, "
        f"{format_size(pinned)} of it pinned",
    )


def line(answer: dict[str, Any]) -> str:
    """For under the table; empty when the host holds next to nothing."""
    need, pinned = answer["host_peak"], answer.get("host_pinned_peak", 0)
    if need < _WORTH_A_LINE and not answer.get("host_memory_limit"):
        return ""
    text = f"Host: {format_size(need)} of tensors at its peak"
    if pinned:
        text += f", {format_size(pinned)} pinned at the most"
    return text + "\n"
