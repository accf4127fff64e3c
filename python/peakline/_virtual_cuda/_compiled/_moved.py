"""How many bytes a kernel moves that is not launched: what its time is guessed by."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

_BOTH_WAYS = "in_out_ptr"  # what Inductor calls a buffer that a kernel reads and writes


def bytes_of(arguments: Iterable[tuple[str, Any]], most_elements: float = math.inf) -> int:
    """Each tensor once, and twice where it is read and written. No kernel of Inductor's touches
    more elements of one than it has iterations: a table that is indexed is not read as a whole."""
    moved = 0
    for name, value in arguments:
        if isinstance(value, torch.Tensor):
            ways = 2 if name.startswith(_BOTH_WAYS) else 1
            moved += ways * int(min(value.numel(), most_elements)) * value.element_size()
    return moved


def iterations(tuner: Any) -> float:
    """Of a kernel of Inductor's, rounded up to powers of two. Templates, and kernels that are made
    of several, do not say."""
    hints, combined = tuner.size_hints, "combo_grid_meta" in tuner.inductor_meta
    return math.inf if combined or not isinstance(hints, dict) else math.prod(hints.values())
