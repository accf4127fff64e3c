"""Pipeline, FSDP2, context and tensor parallel at once: what each kind of rank keeps, by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "llama_4d.py"


@dataclass(frozen=True)
class Job:
    """Matrices are cut by tensor and by data parallel, norms by data parallel alone. The rows of
    the vocabulary do not divide: `rows` for each rank, and fewer for the last."""

    name: str
    pp: int
    dp: int
    cp: int
    tp: int
    layers: tuple[int, ...]  # of each stage
    hidden: int
    inner: int
    kv: int
    rows: int
    last_rows: int

    def rank(self, stage: int, dp: int) -> int:
        return (stage * self.dp + dp) * self.cp * self.tp

    def parameters(self, stage: int, dp: int) -> int:
        """In bytes, of any rank of that stage and place along FSDP."""
        matrices = 2 * self.hidden**2 + 2 * self.hidden * self.kv + 3 * self.hidden * self.inner
        held = self.layers[stage] * (matrices // (self.tp * self.dp) + 2 * self.hidden // self.dp)
        if stage in (0, self.pp - 1):  # the embedding, or the head
            held += (self.rows if dp < self.dp - 1 else self.last_rows) * self.hidden
        if stage == self.pp - 1:
            held += self.hidden // self.dp
        return 4 * held

    def kinds(self) -> dict[int, tuple[int, int]]:
        """Stage and place along FSDP of one rank of each kind: only the ends hold uneven shards."""
        places = [(stage, 0) for stage in range(self.pp)]
        places += [(stage, self.dp - 1) for stage in (0, self.pp - 1)]
        return {self.rank(*place): place for place in places}


# 1002 rows over 2 and then 4 ranks: 501 are 126 three times, and 123.
SMALL = Job("small", 4, 4, 2, 2, (2, 2, 1, 1), 256, 768, 64, 126, 123)
# 128256 rows over 8 and then 64 ranks: 16032 are 251 63 times, and 219.
LARGE = Job("405b", 16, 64, 2, 8, (8,) * 14 + (7,) * 2, 16384, 53248, 1024, 251, 219)


def estimated(job: Job, *flags: str) -> tuple[dict[int, dict[str, int]], dict[str, Any]]:
    """What each rank reports of itself at last, and the answer."""
    world = str(job.pp * job.dp * job.cp * job.tp)
    command = [sys.executable, "-m", "peakline._estimate_script", str(EXAMPLE)]
    command += ["--world-size", world, "--memory", "2000GiB", "--json", "-", *flags]
    command += ["--", "--report", "--size", job.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return {row["rank"]: row for row in rows}, json.loads(done.stdout)


def check_every_kind(job: Job) -> None:
    found, answer = estimated(job, "--ranks", "all-distinct", "--steps", "2")
    kinds = job.kinds()
    assert answer["distinct_ranks"] == sorted(kinds)
    assert sorted(found) == sorted(kinds)
    for rank, (stage, dp) in kinds.items():
        expected = job.parameters(stage, dp)
        kept = {"parameters": expected, "gradients": expected, "states": 2 * expected}
        assert found[rank] == {"rank": rank, "stage": stage, **kept}
    # Earlier stages keep more microbatches; between equal stages that is what makes the difference.
    peaks = {row["rank"]: row["peak_allocated"] for row in answer["ranks"]}
    assert peaks[job.rank(0, 0)] == max(peaks.values())


def test_every_kind_of_rank_keeps_what_is_calculated_by_hand() -> None:
    check_every_kind(SMALL)


def test_a_rank_of_16384_keeps_what_is_calculated_by_hand() -> None:
    rank = LARGE.rank(15, 63)
    found, _ = estimated(LARGE, "--rank", str(rank), "--steps", "1")
    expected = LARGE.parameters(15, 63)
    assert (found[rank]["parameters"], found[rank]["gradients"]) == (expected, expected)


@pytest.mark.full_size
def test_every_kind_of_16384_ranks_keeps_what_is_calculated_by_hand() -> None:
    check_every_kind(LARGE)
