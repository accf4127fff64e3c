"""What the host itself needs: tensors in its memory, and what of them is pinned."""

from __future__ import annotations

from typing import Any

from peakline.run import format_size

_WORTH_A_LINE = 1 << 30


def complete(answer: dict[str, Any], pinned: int, limit: int | None) -> None:
    """Adds the host's side to the answer; `limit`: what the host has, when it was said."""
    fits = limit is None or answer["host_peak"] <= limit
    answer |= {"host_pinned_peak": pinned, "host_memory_limit": limit}
    answer |= {"gpu_fits": answer["fits"], "host_fits": fits}
    if not fits:
        answer |= {"fits": False, "trains": False}


def gpu_side(answer: dict[str, Any]) -> dict[str, Any]:
    """For a table that is the GPU's: it fits there, whatever the host says."""
    return {**answer, "fits": answer["gpu_fits"]}


def line(answer: dict[str, Any]) -> str:
    """For under the table; empty when the host holds next to nothing."""
    need, pinned = answer["host_peak"], answer["host_pinned_peak"]
    limit = answer["host_memory_limit"]
    if need < _WORTH_A_LINE and limit is None:
        return ""
    text = f"Host: {format_size(need)} of tensors at its peak"
    if pinned:
        text += f", {format_size(pinned)} pinned at the most"
    if limit is not None:
        text += f"; fits {format_size(limit)}" if answer["host_fits"] else f"; {too_much(answer)}"
    return text + "\n"


def too_much(answer: dict[str, Any]) -> str:
    return f"does not fit the host's {format_size(answer['host_memory_limit'])}"
