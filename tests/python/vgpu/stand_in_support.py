"""What a call of a stand-in keeps and needs."""

from collections.abc import Callable
from typing import Any

import torch

KIB, MIB = 2**10, 2**20


def blocks(*sizes: int) -> int:
    """What the allocator gives for these many bytes each."""
    return sum(-(-size // 512) * 512 for size in sizes)


def grown(call: Callable[[], Any]) -> tuple[int, int, Any]:
    """What a call keeps, and its peak, above what was there before it."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    return (
        torch.cuda.memory_allocated() - before,
        torch.cuda.max_memory_allocated() - before,
        result,
    )


def half(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def asked_for(call: Callable[[], Any]) -> int:
    """The sum of all that a call asks the allocator for, whether it keeps it or not."""
    key = "requested_bytes.all.allocated"
    before = torch.cuda.memory_stats()[key]
    call()
    return int(torch.cuda.memory_stats()[key] - before)
