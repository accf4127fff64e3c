"""A virtual GPU's recording keeps what its allocator did: simulated, it does the same again."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

import peakline

MIB = 1 << 20


def program(seed: int, live_bytes: int, steps: int = 300) -> None:
    """Allocates and frees at random, on two streams, and sometimes empties the cache. At the end it
    asks for more than is left beside what is cached."""
    dice = random.Random(seed)
    side = torch.cuda.Stream()
    live: list[torch.Tensor] = []
    for _ in range(steps):
        held = sum(tensor.nbytes for tensor in live)
        if live and (held > live_bytes or dice.random() < 0.4):
            live.pop(dice.randrange(len(live)))
            continue
        size = int(2 ** dice.uniform(9, 26))
        with torch.cuda.stream(side if dice.random() < 0.25 else torch.cuda.current_stream()):
            live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        if dice.random() < 0.1:
            live[-1].record_stream(torch.cuda.default_stream())
        if dice.random() < 0.01:
            torch.cuda.empty_cache()
    live.clear()
    torch.empty(live_bytes, dtype=torch.uint8, device="cuda")


def compare(run: peakline.Run, path: Path, stats: dict[str, int]) -> peakline.Simulation:
    run.save(path)
    found = peakline.simulate(path)
    assert found.peak_reserved == stats["reserved_bytes.all.peak"]
    assert found.segments == stats["num_device_alloc"]
    assert found.device_frees == stats["num_device_free"]
    assert found.retries == stats["num_alloc_retries"]
    return found


@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "max_split_size_mb:64"])
@pytest.mark.parametrize("memory", [None, "700MiB"])
def test_a_simulation_of_the_recording_is_the_run(
    conf: str, memory: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", conf)
    retries = 0
    for seed in range(4):
        with peakline.virtual_gpu("h200", memory=memory) as run:
            program(seed, 450 * MIB)
            stats = torch.cuda.memory_stats()
        found = compare(run, tmp_path / "run.peak", stats)
        assert found.conf == conf
        assert found.settings_from == "recording"
        assert found.memory_limit == (None if memory is None else 700 * MIB)
        retries += found.retries
    assert (retries > 0) == (memory is not None)


def test_retries_and_settings_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    with peakline.virtual_gpu("h200", memory="100MiB") as run:
        torch.empty(60 * MIB, dtype=torch.uint8, device="cuda")  # cached, and in the way
        kept = torch.empty(80 * MIB, dtype=torch.uint8, device="cuda")
    del kept
    answer = json.loads(run.to_json())
    assert answer["retries"] == 1
    assert answer["allocator_conf"] == "max_split_size_mb:64"
    assert answer["info"]["allocator_settings"] == "max_split_size_mb:64"
    assert answer["info"]["allocator_limit.cuda:0"] == str(100 * MIB)


def test_a_limit_that_the_program_sets_is_kept(tmp_path: Path) -> None:
    with peakline.virtual_gpu("h200") as run:
        torch.cuda.set_per_process_memory_fraction(0.25)
        kept = torch.empty(80 * MIB, dtype=torch.uint8, device="cuda")
        total = torch.cuda.get_device_properties(0).total_memory
    del kept
    assert peakline.simulate(run).memory_limit == int(0.25 * total)


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_pages_and_fractions_do_not_exceed_the_memory_that_was_given(
    fraction: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True,large_segment_size_mb:64")
    with peakline.virtual_gpu("h200", memory="110MiB") as run:
        if fraction is not None:
            torch.cuda.set_per_process_memory_fraction(fraction)
        kept = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
        del kept
    assert json.loads(run.to_json())["peak_reserved"] == 64 * MIB
    run.save(tmp_path / "run.peak")
    found = peakline.simulate(tmp_path / "run.peak")
    assert (found.fits, found.peak_reserved) == (False, 64 * MIB)


def test_an_oom_is_explained_with_the_settings_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    with (
        peakline.virtual_gpu("h200", memory="100MiB") as run,
        pytest.raises(torch.OutOfMemoryError),
    ):
        torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
    found = peakline.simulate(run)
    assert found.conf == "expandable_segments:True"
    assert not found.fits
    assert found.oom is not None
    assert all(other.conf != "expandable_segments:True" for other in found.settings)
