"""peakline.simulate over files; the simulator itself is tested in C++."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import peakline

MIB = 1 << 20

# Two 8 MiB blocks in one segment of 20 MiB, then 50 MiB in a segment of its own.
TRACE = """action,addr,size,stream
alloc,1000000000,8388608,0
alloc,1008388608,8388608,0
free_requested,1000000000,8388608,0
free_completed,1000000000,8388608,0
alloc,2000000000,52428800,0
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_reserved_bytes_are_whole_segments(trace: Path) -> None:
    result = peakline.simulate(trace)
    assert result.fits
    assert result.peak_reserved == (20 + 50) * MIB
    assert result.peak_allocated == (8 + 50) * MIB
    assert result.memory_stats["reserved_bytes.all.peak"] == result.peak_reserved
    assert sum(v for k, v in result.at_peak.items() if k != "reserved") == result.peak_reserved


def test_a_limit_that_is_too_low_is_out_of_memory_in_torchs_words(trace: Path) -> None:
    result = peakline.simulate(trace, memory="64MiB")
    assert not result.fits
    assert result.memory_limit == 64 * MIB
    assert result.oom is not None
    assert "CUDA out of memory. Tried to allocate 50.00 MiB" in result.oom["message"]
    assert "out of memory in step 1, asking for 50.00 MiB" in str(result)


@pytest.mark.parametrize("limit", [[], ["--memory", "64MiB"]])
def test_a_simulation_prints_what_the_command_prints(trace: Path, limit: list[str]) -> None:
    command = [sys.executable, "-m", "peakline", "simulate", str(trace), *limit]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
    assert f"{peakline.simulate(trace, memory=limit[1] if limit else None)}\n" == printed


def test_compare_ranks_other_settings(trace: Path) -> None:
    settings = peakline.simulate(trace, compare=True).settings
    assert len(settings) > 3
    reserved = [row.peak_reserved for row in settings]
    assert reserved == sorted(reserved)


@pytest.mark.parametrize("conf", ["max_split_size_mb:banana", "unknown:1"])
def test_a_bad_setting_is_one_sentence(trace: Path, conf: str) -> None:
    with pytest.raises(ValueError, match="allocator settings: "):
        peakline.simulate(trace, conf=conf)


def test_another_backend_is_refused(trace: Path) -> None:
    with pytest.raises(RuntimeError, match="cudaMallocAsync"):
        peakline.simulate(trace, conf="backend:cudaMallocAsync")


def test_a_size_that_is_none_is_refused(trace: Path) -> None:
    with pytest.raises(ValueError, match="24GiB"):
        peakline.simulate(trace, memory="plenty")


def test_a_limit_that_the_program_sets_itself_holds(tmp_path: Path) -> None:
    path = tmp_path / "run.peak"
    with peakline.virtual_gpu(memory="2GiB") as run:
        torch.cuda.set_per_process_memory_fraction((1 << 30) / torch.cuda.mem_get_info()[1])
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(1 << 29, device="cuda")  # 2 GiB
        torch.ones(1 << 20, device="cuda")
        run.peak()  # so that a part of the recording is written before its end
    run.save(path)
    found = peakline.simulate(path)
    assert found.memory_limit == 1 << 30
    assert not found.fits
