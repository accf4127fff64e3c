"""Leaving a virtual GPU puts everything in torch back."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.distributed as dist

import peakline

OWNERS: list[Any] = [
    torch,
    torch._C,
    torch.version,
    torch.cuda,
    torch.cuda.memory,
    torch.cuda.graphs,
    torch.cuda.nvtx,
    torch.cuda.random,
    torch.cuda.Stream,
    torch.cuda.ExternalStream,
    torch.cuda.Event,
    torch.cuda.CUDAGraph,
    torch.cuda.MemPool,
    torch.UntypedStorage,
    torch.Tensor,
    torch.nn.Module,
    torch.amp.GradScaler,
    torch.multiprocessing,
    torch.nn.parallel.DistributedDataParallel,
    torch.backends.cudnn.m,  # type: ignore[attr-defined]
    dist,
    dist.distributed_c10d,
]


def contents() -> list[dict[str, Any]]:
    return [dict(vars(owner)) for owner in OWNERS]


def assert_same(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    for owner, old, new in zip(OWNERS, before, after, strict=True):
        assert old.keys() == new.keys(), owner
        changed = [name for name in old if old[name] is not new[name]]
        assert not changed, (owner, changed)


@pytest.fixture(autouse=True)
def warm() -> None:
    """Modules that torch imports on first use are no change of ours."""
    with peakline.virtual_gpu("h200"):
        torch.zeros(2, device="cuda").sum()


def test_nothing_is_left_changed() -> None:
    before = contents()
    with peakline.virtual_gpu("h200", devices=2):
        torch.nn.Linear(4, 4).cuda()(torch.zeros(1, 4, device="cuda")).sum().backward()
    assert_same(before, contents())


def test_nothing_is_left_changed_after_an_exception() -> None:
    before = contents()
    with pytest.raises(ZeroDivisionError), peakline.virtual_gpu("h200"):
        _ = torch.zeros(1, device="cuda").numel() / 0
    assert_same(before, contents())


def test_nothing_is_left_changed_after_running_out_of_memory() -> None:
    before = contents()
    with pytest.raises(torch.OutOfMemoryError), peakline.virtual_gpu("h200", memory="16MiB"):
        torch.zeros(2**30, device="cuda")
    assert_same(before, contents())


def test_entering_and_leaving_a_thousand_times_works() -> None:
    before = contents()
    for _ in range(1000):
        with peakline.virtual_gpu("h200"):
            x = torch.ones(4, device="cuda", requires_grad=True)
            (x * 2).sum().backward()
    gc.collect()
    assert_same(before, contents())
    assert torch.UntypedStorage(8).nbytes() == 8


def test_entering_twice_at_once_is_refused_and_the_first_goes_on() -> None:
    with peakline.virtual_gpu("h200"):
        with pytest.raises(RuntimeError, match="already"), peakline.virtual_gpu("h200"):
            pass
        assert torch.zeros(4, device="cuda").is_cuda


def test_tensors_that_outlive_the_block_can_be_let_go() -> None:
    with peakline.virtual_gpu("h200"):
        kept = [torch.zeros(1024, device="cuda") for _ in range(8)]
        stream, event = torch.cuda.Stream(), torch.cuda.Event()
        event.record(stream)
    del kept, stream, event
    gc.collect()
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.memory_allocated() == 0


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_cuda_is_as_absent_as_before() -> None:
    with peakline.virtual_gpu("h200"):
        torch.zeros(1, device="cuda")
    assert not torch.cuda.is_available()
    assert torch.cuda.device_count() == 0
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.zeros(1).cuda()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(1, device="cuda")
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.Stream()
