"""torch.cuda's memory functions answer from the simulated allocator."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import peakline

MIB = 2**20


def test_allocated_and_reserved_follow_tensors() -> None:
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.memory_allocated() == 0
        x = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() == 100 * MIB
        assert torch.cuda.memory_reserved() == 100 * MIB
        del x
        assert torch.cuda.memory_allocated() == 0
        assert torch.cuda.max_memory_allocated() == 100 * MIB
        assert torch.cuda.memory_reserved() == 100 * MIB
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 0
        assert torch.cuda.max_memory_reserved() == 0


def test_statistics_have_torchs_names_and_nesting() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        assert stats["allocated_bytes.all.current"] == x.nbytes
        assert stats["segment.large_pool.current"] == 1
        assert stats["allocation.all.allocated"] == 1
        assert stats["num_ooms"] == 0
        assert stats["num_alloc_retries"] == 0
        nested = torch.cuda.memory_stats_as_nested_dict()
        assert nested["allocated_bytes"]["large_pool"]["peak"] == x.nbytes
        assert "Allocated memory" in torch.cuda.memory_summary()
        assert torch.accelerator.memory_allocated() == x.nbytes
        torch.cuda.reset_accumulated_memory_stats()
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def test_the_snapshot_lists_segments_and_blocks() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.memory._record_memory_history()
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        assert [segment["total_size"] for segment in snapshot["segments"]] == [20 * MIB]
        blocks = snapshot["segments"][0]["blocks"]
        held = [block["size"] for block in blocks if block["state"] == "active_allocated"]
        assert held == [x.nbytes]
        assert torch.cuda.memory_snapshot() == snapshot["segments"]


def test_a_dumped_snapshot_can_be_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    with peakline.virtual_gpu("h200"):
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.memory._dump_snapshot(str(path))
        del x
    with open(path, "rb") as file:
        assert pickle.load(file)["segments"]


def test_free_memory_is_total_less_reserved_less_context() -> None:
    with peakline.virtual_gpu("h200"):
        free, total = torch.cuda.mem_get_info()
        assert total == torch.cuda.get_device_properties().total_memory
        assert 0 < free <= total
        x = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.mem_get_info(0) == (free - x.nbytes, total)


def test_a_memory_limit_raises_torchs_own_error() -> None:
    with peakline.virtual_gpu("h200", memory="1GiB") as run:
        x = torch.empty(900 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to"):
            torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_stats()["num_ooms"] == 1
        del x
        y = torch.empty(1000 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_stats()["num_alloc_retries"] == 2
        del y
    assert run.peak("cuda:0").bytes == 1000 * MIB


def test_the_memory_fraction_caps_reserved_memory() -> None:
    with peakline.virtual_gpu("h200"):
        total = torch.cuda.get_device_properties().total_memory
        torch.cuda.set_per_process_memory_fraction(0.01)
        assert torch.cuda.get_per_process_memory_fraction() == 0.01
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(total // 50, dtype=torch.uint8, device="cuda")
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.empty(total // 50, dtype=torch.uint8, device="cuda")


def test_more_than_the_gpu_has_is_out_of_memory() -> None:
    with peakline.virtual_gpu("h200"), pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**40, dtype=torch.uint8, device="cuda")


def test_allocator_settings_of_the_environment_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:4")
    with peakline.virtual_gpu("h200"):
        x = torch.empty(5 * MIB + 1, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() == 6 * MIB
        del x


def test_raw_blocks_of_the_allocator_are_counted() -> None:
    with peakline.virtual_gpu("h200"):
        address = torch.cuda.caching_allocator_alloc(4 * MIB)
        assert torch.cuda.memory_allocated() == 4 * MIB
        torch.cuda.caching_allocator_delete(address)
        assert torch.cuda.memory_allocated() == 0
        assert torch.cuda.get_allocator_backend() == "native"


def test_no_other_process_is_on_a_virtual_gpu() -> None:
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.list_gpu_processes() == "GPU:0\nno processes are running"
        assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 0


def test_an_oom_in_backward_reaches_the_program() -> None:
    with peakline.virtual_gpu("h200", memory="1GiB"):
        with torch.device("cuda"):
            model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8)))
        loss = model(torch.zeros(8, 4096, device="cuda")).sum()
        with pytest.raises(torch.OutOfMemoryError):
            loss.backward()
