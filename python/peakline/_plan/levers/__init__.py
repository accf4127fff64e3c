"""Everything that a plan can change, one file each. Activations are apart: `recompute.py`."""

from __future__ import annotations

from peakline._plan.levers import (
    allocator,
    compile_budget,
    fsdp_reduce_dtype,
    fsdp_replicate,
    fsdp_reshard,
    fsdp_wrap,
    optimizer_implementation,
    optimizer_in_backward,
    optimizer_state,
)
from peakline._plan.levers.lever import Lever

LEVERS: tuple[Lever, ...] = (
    optimizer_implementation.LEVER,
    allocator.LEVER,
    compile_budget.LEVER,
    optimizer_in_backward.LEVER,
    optimizer_state.LEVER,
    fsdp_wrap.LEVER,
    fsdp_reshard.LEVER,
    fsdp_replicate.LEVER,
    fsdp_reduce_dtype.LEVER,
)
BY_KEY = {lever.key: lever for lever in LEVERS}
