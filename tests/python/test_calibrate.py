"""The profile that calibrate writes is one that estimate reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import peakline
from peakline import _C, _calibrate, _calibrate_time

NUMBERS: dict[str, str | int] = {
    "compute_capability": "8.9",
    "sm_count": 100,
    "max_threads_per_sm": 1536,
    "total_memory": 16 << 30,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_opt_in": 101376,
    "shared_memory_per_sm": 102400,
    "context": 300 << 20,
    "context_with_cublas": 350 << 20,
    "context_with_cudnn": 360 << 20,
}


def test_written_profile_is_a_gpu_that_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(_calibrate.to_toml('NVIDIA "Test" 16', NUMBERS))
    with peakline.virtual_gpu(str(path)):
        properties = torch.cuda.get_device_properties(0)
        assert properties.name == 'NVIDIA "Test" 16'
        assert properties.multi_processor_count == 100
        assert properties.total_memory == 16 << 30


def test_profile_of_a_virtual_gpu_describes_it() -> None:
    with peakline.virtual_gpu("h200"):
        name, numbers = _calibrate.profile(0)
    assert name == "NVIDIA H200"
    assert numbers["compute_capability"] == "9.0"
    assert numbers["sm_count"] == 132


def test_a_known_gpu_keeps_its_rates_and_the_host_is_the_one_measured(tmp_path: Path) -> None:
    known = _C.cost.Profile("h200").to_toml()
    text = _calibrate_time.with_known_rates(
        _calibrate.to_toml("NVIDIA H200", NUMBERS),
        {"host_op_us": 7.5, "pageable_gbps": 3.25},
        known,
    )
    path = tmp_path / "here.toml"
    path.write_text(text)
    made = tables(_C.cost.Profile(str(path)).to_toml())
    installed = tables(known)
    assert made["measured"]["host_op_us"] == "7.5"
    assert made["measured"]["pageable_gbps"] == "3.25"
    assert made["measured"]["sm_count"] == "100"  # what was measured of this GPU
    for key in ("tensor_share", "row_share", "kernel_us", "host_sync_us"):
        assert made["measured"][key] == installed["measured"][key]
    assert made["public"]["dram_gbps"] == "4800"
    assert made["estimated"]["nvlink_us"] == "2"


def tables(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = {}
        elif found and " = " in line:
            key, value = line.split(" = ")
            found[list(found)[-1]][key] = value
    return found


def test_the_host_alone_of_a_gpu_that_is_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA Nonesuch")
    assert _calibrate.main(["--host"]) == _calibrate.BAD_USAGE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert _calibrate.main([]) == _calibrate.FAILED
    assert "no GPU" in capsys.readouterr().err


def test_unknown_flag_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        _calibrate.main(["--nonsense"])
    assert stop.value.code == _calibrate.BAD_USAGE
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
