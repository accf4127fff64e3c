"""Memory that the driver takes for itself lies between a program's segments."""

from __future__ import annotations

import torch

import peakline

MIB = 1 << 20


def _segments() -> list[int]:
    """Addresses of segments of 32 MiB, in MiB, in the order in which they lie."""
    found = torch.cuda.memory_snapshot()
    return sorted(s["address"] // MIB for s in found if s["total_size"] == 32 * MIB)


def _launch_a_kernel() -> torch.Tensor:
    return torch.ones(256, 256, device="cuda").add_(1)


def test_cublas_takes_memory_before_its_workspace() -> None:
    with peakline.virtual_gpu("h200"):
        x = _launch_a_kernel()
        before = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        x @ x
        first, workspace = _segments()
        del before
    assert workspace - first == 32 + 66


def test_the_first_stream_makes_the_driver_take_memory() -> None:
    with peakline.virtual_gpu("h200"):
        x = _launch_a_kernel()
        kept = [torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")]
        torch.cuda.Stream()
        kept.append(torch.empty(32 * MIB, dtype=torch.uint8, device="cuda"))
        torch.cuda.Stream()
        kept.append(torch.empty(32 * MIB, dtype=torch.uint8, device="cuda"))
        first, second, third = _segments()
        del x
    assert second - first == 32 + 64
    assert third - second == 32
