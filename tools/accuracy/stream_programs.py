"""Programs of two streams, predicted and measured: what overlaps, and what waits."""

from __future__ import annotations

from collections.abc import Callable

import torch

Program = Callable[[], None]


def copies_beside_kernels(device: str) -> Program:
    """Batches come over the bus while products of the last one run."""
    side = torch.cuda.Stream()
    host = torch.ones(64 << 20, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device=device)
    a = torch.ones(4096, 4096, device=device, dtype=torch.bfloat16)

    def step() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            there.copy_(host, non_blocking=True)
        for _ in range(12):
            a @ a
        torch.cuda.current_stream().wait_stream(side)

    return step


def two_kernels_at_once(device: str) -> Program:
    """Small kernels on two streams, which run side by side, and large ones, which cannot."""
    side = torch.cuda.Stream()
    large = torch.ones(4096, 4096, device=device, dtype=torch.bfloat16)
    wide = torch.ones(64 << 20, device=device)

    def step() -> None:
        side.wait_stream(torch.cuda.current_stream())
        for _ in range(8):
            large @ large
            with torch.cuda.stream(side):
                wide.mul_(1.0)
        torch.cuda.current_stream().wait_stream(side)

    return step


def a_waiting_event(device: str) -> Program:
    """The second stream starts when the first is half done, and the first ends with the second."""
    side, half = torch.cuda.Stream(), torch.cuda.Event()
    a = torch.ones(4096, 4096, device=device, dtype=torch.bfloat16)
    host = torch.empty(64 << 20, dtype=torch.uint8).pin_memory()
    there = torch.ones(64 << 20, dtype=torch.uint8, device=device)

    def step() -> None:
        for _ in range(6):
            a @ a
        half.record()
        side.wait_event(half)
        with torch.cuda.stream(side):
            host.copy_(there, non_blocking=True)
        for _ in range(4):
            a @ a
        torch.cuda.current_stream().wait_stream(side)

    return step


PROGRAMS: dict[str, Callable[[str], Program]] = {
    "copies_beside_kernels": copies_beside_kernels,
    "two_kernels_at_once": two_kernels_at_once,
    "a_waiting_event": a_waiting_event,
}
