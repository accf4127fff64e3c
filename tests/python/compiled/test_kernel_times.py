"""Kernels that Inductor writes, and a program's own: they take the time of the bytes they move."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import peakline

triton = pytest.importorskip("triton")
tl = triton.language

MIB = 2**20


def busy_ms(run: Any, call: Callable[[], Any]) -> float:
    """Of one call, when everything has been compiled."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    before = run.timing().gpu_busy_ms
    call()
    torch.cuda.synchronize()
    return float(run.timing().gpu_busy_ms - before)


def test_a_fused_kernel_takes_as_long_as_one_op_of_as_many_bytes() -> None:
    with peakline.virtual_gpu("h200") as run:
        x = torch.empty(256 * MIB, device="cuda")
        one = busy_ms(run, lambda: x.sin())
        fused = torch.compile(lambda x: (x.sin() + 3).cos() * 2)
        assert busy_ms(run, lambda: fused(x)) == pytest.approx(one, rel=0.02)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_so_it_does_in_a_cuda_graph(mode: str) -> None:
    with peakline.virtual_gpu("h200") as run, torch.no_grad():
        weight = torch.nn.Parameter(torch.empty(256 * MIB, device="cuda"))  # not copied for a graph
        one = busy_ms(run, lambda: weight.sin())
        fused = torch.compile(lambda x: (x.sin() + 3).cos() * 2, mode=mode)
        assert busy_ms(run, lambda: fused(weight)) == pytest.approx(one, rel=0.02)


def test_of_a_table_only_what_is_looked_up_counts() -> None:
    with peakline.virtual_gpu("h200") as run:
        table = torch.empty(256 * MIB // 64, 64, device="cuda")
        rows = torch.zeros(1024, dtype=torch.long, device="cuda")
        look_up = torch.compile(lambda rows, table: functional.embedding(rows, table) * 2)
        assert busy_ms(run, lambda: look_up(rows, table)) < 0.02


def test_it_counts_as_guessed() -> None:
    with peakline.virtual_gpu("h200") as run:
        x = torch.empty(MIB, device="cuda")
        torch.compile(lambda x: x.sin() + 1)(x)
        assert run.timing().guessed_ms > 0


@triton.jit
def _double(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def test_a_programs_own_kernel_takes_its_time() -> None:
    with peakline.virtual_gpu("h200") as run:
        x = torch.empty(256 * MIB, device="cuda")
        one = busy_ms(run, lambda: x.sin())
        y = torch.empty_like(x)
        own = busy_ms(run, lambda: _double[(256 * MIB // 1024,)](x, y, 256 * MIB, 1024))
        assert own == pytest.approx(one, rel=0.02)
