"""Ranks that really run, with gloo, keep tensors of the same bytes as their virtual estimates."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).with_name("jobs.py")
SINGLE = ("tp", "sp", "pp", "ep")
COMBINED = ("tp+fsdp", "pp+fsdp", "ep+fsdp")
Row = dict[str, int]

WIDTH = 64
MATRICES = 12 * WIDTH * WIDTH  # of a block: four of attention, and eight
UP, DOWN = 4 * WIDTH, WIDTH  # biases
BLOCK = MATRICES + UP + DOWN
EXPERT = 2 * (WIDTH * WIDTH + WIDTH)


@functools.cache
def kept(how: str, world: int, kinds: tuple[str, ...]) -> dict[str, list[Row]]:
    """What every rank of every kind of job keeps."""
    command = [sys.executable, str(JOBS), how, str(world), *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rows.sort(key=lambda row: int(row["rank"]))
    found: dict[str, list[Row]] = {kind: [] for kind in kinds}
    for row in rows:
        found[row.pop("kind")].append(row)
    return found


def real_and_virtual(kind: str, world: int) -> tuple[list[Row], list[Row]]:
    kinds = SINGLE if world == 2 else (*SINGLE, *COMBINED, "uneven")
    return kept("real", world, kinds)[kind], kept("virtual", world, kinds)[kind]


def without_tracked(row: Row) -> Row:
    return {name: size for name, size in row.items() if not name.startswith("tracked")}


@pytest.mark.parametrize(
    ("kind", "world"),
    [*((kind, world) for world in (2, 4) for kind in SINGLE), *((kind, 4) for kind in COMBINED)],
)
def test_a_real_rank_and_its_estimate_keep_the_same_bytes(kind: str, world: int) -> None:
    real, virtual = real_and_virtual(kind, world)
    assert len(real) == world
    assert real[0]["saved"] > 0
    assert virtual == [without_tracked(row) for row in real]


@pytest.mark.parametrize("kind", [*SINGLE, *COMBINED])
def test_a_real_rank_is_tracked_to_the_byte(kind: str) -> None:
    for row in real_and_virtual(kind, 4)[0]:
        assert row["tracked Parameter"] == row["parameters"]
        assert row["tracked Optstate"] == row["optimizer"] + row["step counts"]


PARAMETERS = {  # numbers, on each rank
    "tp": [(MATRICES + UP) // 4 + DOWN] * 4,
    "sp": [(MATRICES + UP) // 4 + DOWN + 4 * WIDTH] * 4,  # norms have a weight and a bias
    "pp": [2 * BLOCK, BLOCK, BLOCK, BLOCK],
    "ep": [2 * EXPERT] * 4,
    "tp+fsdp": [(MATRICES + UP) // 4 + DOWN // 2] * 4,
    "pp+fsdp": [BLOCK, BLOCK, BLOCK // 2, BLOCK // 2],
    "ep+fsdp": [BLOCK // 4 + EXPERT] * 4,  # two experts, each in halves
}


@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_rank_keeps_what_is_calculated_by_hand(kind: str) -> None:
    check_by_hand(real_and_virtual(kind, 4)[1], [4 * count for count in PARAMETERS[kind]])


def check_by_hand(rows: list[Row], parameters: list[int]) -> None:
    assert [row["parameters"] for row in rows] == parameters
    assert [row["gradients"] for row in rows] == parameters
    assert [row["optimizer"] for row in rows] == [2 * size for size in parameters]


def test_hybrid_sharding_and_context_parallel_keep_what_is_calculated_by_hand() -> None:
    """Three matrices of two bytes a number, in two shards; the sequence does not matter."""
    rows = kept("virtual", 8, ("hsdp+cp",))["hsdp+cp"]
    check_by_hand(rows, [2 * 3 * WIDTH * WIDTH // 2] * 8)


def test_uneven_shards_are_the_same_on_every_rank() -> None:
    real, virtual = real_and_virtual("uneven", 4)
    assert virtual == [without_tracked(row) for row in real]
    # 10 and 3 rows of weights, and as many biases, dealt as torch.chunk does.
    first, second = [3, 3, 3, 1], [1, 1, 1, 0]
    expected = [4 * (a * 65 + b * 11) for a, b in zip(first, second, strict=True)]
    check_by_hand(virtual, expected)
    # FSDP pads every shard to the largest, so that is what the ranks' memory holds.
    assert [row["tracked Parameter"] for row in real] == [expected[0]] * 4
