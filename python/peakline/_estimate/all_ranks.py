"""One estimate for each kind of rank, each in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Estimate = Callable[[int], tuple[int, Answer | None]]  # rank: exit status, and the answer


def estimate_distinct(estimate: Estimate, jobs: int | None = None) -> tuple[int, list[Answer]]:
    """Rank 0 tells which ranks there are; then those. The worst exit status, and the answers.

    Processes are forked: the script runs in each from its beginning, and torch is imported once.
    """
    at_once = jobs or os.cpu_count() or 1
    status, first = _in_processes(estimate, [0], 1)[0]
    if first is None:
        return status, []
    others = [rank for rank in first.get("distinct_ranks", []) if rank != 0]
    found = [(status, first), *_in_processes(estimate, others, at_once)]
    answers = [answer for _, answer in found if answer is not None]
    failed = [status for status, answer in found if answer is None]
    return (failed[0] if failed else max(status for status, _ in found)), answers


def largest(answers: Iterable[Answer]) -> Answer:
    """The answer of the rank that needs the most, with a line for each rank under `ranks`."""
    rows = list(answers)
    worst = max(rows, key=_need)
    keys = ("rank", "device", "peak_allocated", "peak_reserved", "fits", "ooms")
    listed = [{key: row[key] for key in keys} for row in rows]
    return {**worst, "ranks": sorted(listed, key=lambda row: row["rank"])}


def _need(answer: Answer) -> tuple[bool, int, int, int]:
    reserved = answer["peak_reserved"] or 0
    return answer["ooms"] > 0, reserved, answer["peak_allocated"], -answer["rank"]


def _in_processes(
    estimate: Estimate, ranks: list[int], at_once: int
) -> list[tuple[int, Answer | None]]:
    with tempfile.TemporaryDirectory(prefix="peakline-") as folder:
        running: dict[int, int] = {}
        waiting = list(reversed(ranks))
        while waiting or running:
            while waiting and len(running) < at_once:
                rank = waiting.pop()
                running[_start(estimate, rank, Path(folder) / str(rank))] = rank
            pid, _ = os.wait()
            running.pop(pid, None)
        return [_read(Path(folder) / str(rank)) for rank in ranks]


def _start(estimate: Estimate, rank: int, path: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        status, answer = estimate(rank)
        path.write_text(json.dumps([status, answer]))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def _read(path: Path) -> tuple[int, Answer | None]:
    if not path.exists():
        return 1, None  # it was killed, or could not say
    status, answer = json.loads(path.read_text())
    return status, answer
