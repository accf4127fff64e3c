"""Entering and leaving: torch is as it was, whatever happened inside."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import peakline
from peakline import _C

HAS_GPU = torch.cuda.is_available()


def test_torch_has_no_gpu_before_and_after() -> None:
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.is_available()
        torch.zeros(1, device="cuda")
    assert torch.cuda.is_available() == HAS_GPU
    assert not _C.vgpu.active()
    if not HAS_GPU:
        with pytest.raises((RuntimeError, AssertionError)):
            torch.zeros(1, device="cuda")


def test_an_exception_inside_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), peakline.virtual_gpu("h200"):
        print(1 // int(torch.zeros(1, device="cuda").numel() - 1))
    assert not _C.vgpu.active()
    assert torch.cuda.is_available() == HAS_GPU


def test_it_can_be_entered_a_thousand_times() -> None:
    for _ in range(1000):
        _C.vgpu.enter({"gpu": "h200"})
        try:
            x = torch.empty(100, device="meta")
            assert _C.vgpu.memory_stats(0)["allocated_bytes.all.current"] == 0
        finally:
            _C.vgpu.leave()
    for _ in range(20):
        with peakline.virtual_gpu("h200"):
            x = torch.empty(128, device="cuda")
            assert torch.cuda.memory_allocated() == 512
            del x


def test_two_at_once_are_refused() -> None:
    with (
        peakline.virtual_gpu("h200"),
        pytest.raises(RuntimeError, match="a virtual GPU is on already"),
        peakline.virtual_gpu("h200"),
    ):
        pass
    assert not _C.vgpu.active()


@pytest.mark.parametrize("devices", [0, 9])
def test_a_number_of_devices_that_no_machine_has_is_refused(devices: int) -> None:
    with (
        pytest.raises(ValueError, match="1 to 8"),
        peakline.virtual_gpu("h200", devices=devices),
    ):
        pass


def test_a_tensor_that_outlives_its_block_can_be_dropped_but_not_used() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.randn(4, device="cuda")
    with pytest.raises(RuntimeError, match="block that has ended"):
        x + 1
    assert x.shape == (4,)
    with peakline.virtual_gpu("h200"):
        del x
        assert torch.cuda.memory_allocated() == 0


def test_backward_works_after_a_backward_on_the_host() -> None:
    torch.randn(3, requires_grad=True).sum().backward()
    with peakline.virtual_gpu("h200"):
        weight = torch.randn(8, 8, device="cuda", requires_grad=True)
        (weight @ weight).sum().backward()
        assert weight.grad is not None
        assert weight.grad.shape == (8, 8)
    torch.randn(3, requires_grad=True).sum().backward()


def test_threads_started_inside_are_virtual_too() -> None:
    def work(_: int) -> bool:
        x = torch.randn(16, 16, device="cuda", requires_grad=True)
        (x @ x).sum().backward()
        return _C.vgpu.is_virtual(x) and x.grad is not None

    with peakline.virtual_gpu("h200"):
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(64)))
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(work(0)))
        thread.start()
        thread.join()
        assert results == [True]
        torch.cuda.synchronize()
        # What is left are the workspaces that each thread's BLAS handle keeps.
        assert all(row["blocks"] for row in torch.cuda.memory._snapshot()["segments"])


def test_each_thread_has_its_own_device_and_stream() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        torch.cuda.set_device(1)
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(torch.cuda.current_device()))
        thread.start()
        thread.join()
        assert found == [0]
        assert torch.empty(1, device="cuda").device.index == 1


def test_memory_of_the_host_stays_real() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.arange(6.0)
        assert (x * 2).tolist() == [0, 2, 4, 6, 8, 10]
        y = x.clone().requires_grad_()
        (y * y).sum().backward()
        assert y.grad is not None
        assert y.grad.tolist() == [0, 2, 4, 6, 8, 10]
