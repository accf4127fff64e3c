"""NCCL's memory: what is counted, for which groups, and against what."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch.distributed as dist

import peakline
from peakline import _C
from peakline._virtual_cuda._job import Job
from peakline._virtual_cuda._nccl import guessed_bytes

MIB = 1 << 20


def text(found: dict[str, Any]) -> str:
    return _C.estimate_text(json.dumps({"device": "cuda:0", **found}), "train.py", 1.0)


def job() -> Job:
    made = Job()
    made.world_size = 4
    for ranks in ((0, 1, 2, 3), (0, 1), (0,)):
        made.add_communicator(ranks)
    return made


def answer(**changed: Any) -> dict[str, Any]:
    return {"peak_reserved": 90, "memory_limit": 100, "fits": True, "warnings": [], **changed}


def test_it_counts_against_the_gpu_but_not_against_a_limit() -> None:
    assert job().complete(answer(), 0, 4, None)["fits"]
    assert not job().complete(answer(), 0, 6, None)["fits"]
    limited = job().complete(answer(), 0, 6, 100)
    assert limited["fits"]
    assert limited["nccl_memory"] == 12
    assert limited["peak_with_nccl"] == 102
    assert limited["communicators"] == [4, 2]
    assert "2 NCCL communicators" in limited["warnings"][0]
    assert "guessed" not in limited["warnings"][0]


def test_one_communicator_is_told_of_without_a_sum() -> None:
    made = Job()
    made.world_size = 4
    made.add_communicator((0, 1, 2, 3))
    (sentence,) = made.complete(answer(), 0, 6, 100)["warnings"]
    assert sentence.startswith("1 NCCL communicator (of 4 ranks) is counted with 6 B, outside")
    assert "in all" not in sentence


def test_what_fits_by_itself_and_not_with_nccl_is_said_not_to_fit() -> None:
    found = job().complete(answer(ooms=0), 0, 6, None)
    assert "does not fit: 2 B too little" in text(found)
    assert "fits, 2 B to spare" in text(job().complete(answer(ooms=0), 0, 4, None))


def test_without_a_size_it_is_guessed_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_BUFFSIZE", raising=False)
    found = job().complete(answer(memory_limit=1 << 40), 0, None, None)
    assert found["nccl_memory"] == 2 * guessed_bytes({})
    assert found["nccl_guessed"]
    assert found["peak_reserved"] == 90  # torch's allocator knows nothing of it
    assert "guessed" in found["warnings"][0]


def test_a_channel_takes_what_nccls_log_shows_on_h100s() -> None:
    # 10485760 and 2097152 bytes for each channel and peer, in NVIDIA/nccl issue 1685
    assert guessed_bytes({"NCCL_MAX_NCHANNELS": "1"}) == 10485760 + 2097152


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ({}, 16 * 12 * MIB),
        ({"NCCL_BUFFSIZE": str(8 * MIB)}, 16 * 16 * MIB),
        ({"NCCL_MAX_NCHANNELS": "4"}, 4 * 12 * MIB),
        ({"NCCL_MIN_NCHANNELS": "32"}, 32 * 12 * MIB),
        ({"NCCL_BUFFSIZE": "large", "NCCL_MAX_NCHANNELS": "-1"}, 16 * 12 * MIB),
    ],
)
def test_the_guess_follows_nccls_variables(environment: dict[str, str], size: int) -> None:
    assert guessed_bytes(environment) == size


def communicators(backend: str | None, other: str | None = None) -> list[int]:
    gpu = peakline.virtual_gpu("h200", devices=4)
    with gpu:
        dist.init_process_group(backend, rank=0, world_size=4)
        dist.new_group([0, 1], backend=other)
        dist.new_group([0, 2], None, other)
    return gpu.job.communicators


def test_only_groups_for_gpus_have_communicators() -> None:
    assert communicators("nccl") == [4, 2, 2]
    assert communicators(None) == [4, 2, 2]
    assert communicators("cpu:gloo,cuda:nccl") == [4, 2, 2]
    assert communicators("nccl", "gloo") == [4]
    assert communicators("gloo") == []
    assert communicators("gloo", "nccl") == [2, 2]
