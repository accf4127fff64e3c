"""torch.cuda says which virtual devices there are."""

from __future__ import annotations

import pytest
import torch

import peakline


def test_a_virtual_gpu_is_available_only_inside_the_block() -> None:
    before = torch.cuda.is_available(), torch.cuda.device_count()
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.is_available()
        assert torch.cuda.is_initialized()
        assert torch.cuda.device_count() == 1
        assert torch.backends.cuda.is_built()
        assert torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert (torch.cuda.is_available(), torch.cuda.device_count()) == before


def test_properties_are_those_of_the_gpu_that_was_asked_for() -> None:
    with peakline.virtual_gpu("h200"):
        properties = torch.cuda.get_device_properties(0)
        assert "H200" in properties.name
        assert torch.cuda.get_device_name() == properties.name
        assert torch.cuda.get_device_capability() == (9, 0)
        assert properties.total_memory > 140 * 10**9
        assert properties.multi_processor_count == 132
        assert torch.cuda.is_bf16_supported()
        assert torch.cuda.is_tf32_supported()
        assert torch.cuda.get_arch_list() == ["sm_90"]
        assert "H200" in repr(properties)


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_tensors_live_on_the_device_they_were_made_for(devices: int) -> None:
    with peakline.virtual_gpu("h200", devices=devices):
        assert torch.cuda.device_count() == devices
        assert torch.accelerator.device_count() == devices
        last = devices - 1
        x = torch.zeros(1024, device=f"cuda:{last}")
        assert x.device == torch.device("cuda", last)
        assert x.get_device() == last
        held = [torch.cuda.memory_allocated(device) for device in range(devices)]
        assert held == [4096 if device == last else 0 for device in range(devices)]


def test_the_current_device_follows_contexts_and_set_device() -> None:
    with peakline.virtual_gpu("h200", devices=4):
        assert torch.cuda.current_device() == 0
        with torch.cuda.device(2):
            assert torch.cuda.current_device() == 2
            assert torch.empty(1, device="cuda").device.index == 2
            with torch.cuda.device("cuda:3"), torch.cuda.device(-1):
                assert torch.cuda.current_device() == 3
        assert torch.cuda.current_device() == 0
        torch.cuda.set_device(1)
        assert torch.empty(1).cuda().device.index == 1
        assert torch.accelerator.current_device_index() == 1
        with torch.cuda.device_of(torch.empty(1, device="cuda:2")):
            assert torch.cuda.current_device() == 2
        assert torch.cuda.can_device_access_peer(0, 1)


def test_a_device_that_is_not_there_is_refused() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.cuda.set_device(2)
        with pytest.raises(AssertionError, match="Invalid device id"):
            torch.cuda.get_device_properties(5)
        with pytest.raises(RuntimeError):
            torch.empty(1, device="cuda:7")


def test_the_default_device_makes_modules_and_tensors_virtual() -> None:
    with peakline.virtual_gpu("h200"):
        torch.set_default_device("cuda")
        try:
            layer = torch.nn.Linear(8, 8)
            assert layer.weight.is_cuda
            assert torch.arange(4).is_cuda
            assert torch.tensor([1.0, 2.0]).is_cuda
        finally:
            torch.set_default_device(None)
        assert not torch.zeros(1).is_cuda


def test_cpu_tensors_stay_real() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.arange(6.0).reshape(2, 3)
        assert (x @ x.T).tolist() == [[5.0, 14.0], [14.0, 50.0]]
        assert x.numpy().sum() == 15


def test_synchronizing_and_other_calls_without_effect_are_answered() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        torch.cuda.init()
        torch.cuda.synchronize()
        torch.cuda.synchronize(1)
        torch.accelerator.synchronize()
        torch.cuda.ipc_collect()
        torch.cuda._sleep(1000)
        torch.cuda.set_sync_debug_mode("warn")
        assert torch.cuda.get_sync_debug_mode() == 1
        assert torch.cuda.utilization() == 0
        torch.cuda.cudart().cudaProfilerStart()
