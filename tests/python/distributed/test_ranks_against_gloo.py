"""Ranks that really run, with gloo, keep tensors of the same bytes as their virtual estimates."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).with_name("jobs.py")
Rows = list[dict[str, int]]


@functools.cache
def kept(how: str, world: int) -> dict[str, Rows]:
    """What every rank of every kind of job keeps."""
    kinds = ["tp", "pp", "ep", "uneven"]
    command = [sys.executable, str(JOBS), how, str(world), *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rows.sort(key=lambda row: int(row["rank"]))
    found: dict[str, Rows] = {kind: [] for kind in kinds}
    for row in rows:
        found[row.pop("kind")].append(row)
    return found


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("kind", ["tp", "pp", "ep"])
def test_a_real_rank_and_its_estimate_keep_the_same_bytes(kind: str, world: int) -> None:
    real = kept("real", world)[kind]
    assert len(real) == world
    assert real[0]["saved"] > 0
    assert kept("virtual", world)[kind] == real


def test_uneven_shards_are_the_same_on_every_rank() -> None:
    rows = kept("real", 4)["uneven"]
    assert rows == kept("virtual", 4)["uneven"]
    # 10 and 3 rows of weights, and as many biases, dealt as torch.chunk does.
    first, second = [3, 3, 3, 1], [1, 1, 1, 0]
    expected = [4 * (a * 65 + b * 11) for a, b in zip(first, second, strict=True)]
    assert [row["parameters"] for row in rows] == expected
    assert [row["optimizer"] for row in rows] == [2 * size for size in expected]
