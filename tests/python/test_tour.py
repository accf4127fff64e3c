"""Every block of docs/tour.md works when it is typed, in this order, and prints what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))

from run_page import Block, Reader, blocks  # noqa: E402

TOUR = blocks(ROOT / "docs/tour.md")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("tour"))


@pytest.mark.parametrize("block", TOUR, ids=[f"line {block.line}" for block in TOUR])
def test_a_block_of_the_tour_works(reader: Reader, block: Block) -> None:
    reader.does(block)


def test_the_tour_is_not_empty_and_compares_what_is_printed() -> None:
    kinds = [block.kind for block in TOUR]
    assert kinds.count("sh") >= 7
    assert kinds.count("python") >= 3
    assert kinds.count("text") >= 6


def test_a_page_with_a_wrong_block_is_noticed(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.does(Block("python", "print('one')", 1))
    reader.does(Block("text", "…\none\n", 2))
    with pytest.raises(AssertionError, match="not printed: two"):
        reader.does(Block("text", "two\n", 3))
    with pytest.raises(AssertionError, match="not 0"):
        reader.does(Block("sh", "peakline show missing.peak\n", 4))
    reader.does(Block("sh", "peakline show missing.peak  # exits with 2\n", 5))
