"""One estimate for each kind of rank, each in a process of its own."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

# Slow to import, used by most jobs of many ranks, and the same for every rank.
_SHARED = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.experimental",
    "torch.distributed.tensor.parallel",
)
Answer = dict[str, Any]
Tell = Callable[[str, list[int]], None]  # "stages" or "shards", and one rank of each
Estimate = Callable[[int, Tell], tuple[int, Answer | None]]  # the exit status, and the answer


def estimate_distinct(estimate: Estimate, jobs: int | None = None) -> tuple[int, list[Answer]]:
    """Rank 0, and those that it tells of. The worst exit status, and the answers.

    Rank 0 knows the stages of a pipeline, as soon as it has made its own. Each of those ranks knows
    how tensors are sharded in its stage. When rank 0 fails, no further ranks are begun.
    """
    _import_shared()
    queue = _Queue()
    processes: dict[Connection, _Process] = {}
    at_once = jobs or len(os.sched_getaffinity(0))
    while processes or queue.waiting:
        while queue.waiting and len(processes) < at_once:
            process = _Process(estimate, queue.waiting.pop(0), max(1, _cores() // at_once))
            processes[process.pipe] = process
        for pipe in wait(list(processes)):
            process = processes[pipe]  # type: ignore[index]
            message = process.receive()
            if message is None:
                del processes[process.pipe]
                queue.done[process.rank] = process.result
                if process.rank == 0 and process.result[1] is None:
                    queue.waiting.clear()
            else:
                queue.add(process.rank, *message)
    return queue.worst(), queue.answers()


def _import_shared() -> None:
    for name in _SHARED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def largest(answers: Iterable[Answer]) -> Answer:
    """The answer of the rank that needs the most, with a line for each rank under `ranks`.

    It is partial when one of them is, and then says why.
    """
    rows = list(answers)
    worst = max(rows, key=_need)
    keys = ("rank", "device", "peak_allocated", "peak_reserved", "fits", "ooms", "partial")
    listed = [{key: row[key] for key in keys} for row in rows]
    listed.sort(key=lambda row: row["rank"])
    cut = [row for row in rows if row["partial"] and row is not worst]
    why = [f"rank {row['rank']}: {row['warnings'][0]}" for row in cut]
    return {
        **worst,
        "ranks": listed,
        "partial": bool(worst["partial"] or cut),
        "warnings": why + worst["warnings"],
    }


def _need(answer: Answer) -> tuple[bool, int, int, int]:
    reserved = answer["peak_reserved"] or 0
    return not answer["fits"], reserved, answer["peak_allocated"], -answer["rank"]


@dataclass
class _Queue:
    """Which ranks are to be estimated, and what came of it."""

    waiting: list[int] = field(default_factory=lambda: [0])
    seen: set[int] = field(default_factory=lambda: {0})
    stages: set[int] = field(default_factory=lambda: {0})
    done: dict[int, tuple[int, Answer | None]] = field(default_factory=dict)

    def add(self, teller: int, kind: str, ranks: list[int]) -> None:
        """Others tell of the same ranks in other words: of their neighbours' stages and shards."""
        if teller not in self.stages or (kind == "stages" and teller != 0):
            return
        if kind == "stages":
            self.stages.update(ranks)
        self.waiting += [rank for rank in ranks if rank not in self.seen]
        self.seen.update(ranks)

    def worst(self) -> int:
        failed = [status for status, answer in self.done.values() if answer is None]
        return failed[0] if failed else max(status for status, _ in self.done.values())

    def answers(self) -> list[Answer]:
        found = [answer for _, answer in self.done.values() if answer is not None]
        return [{**answer, "distinct_ranks": sorted(self.seen)} for answer in found]


class _Process:
    """A rank's estimate in a fork of this process: the script runs in each from its beginning, and
    torch is imported once."""

    def __init__(self, estimate: Estimate, rank: int, threads: int) -> None:
        self.rank = rank
        self.pipe, theirs = Pipe(duplex=False)
        self.result: tuple[int, Answer | None] = (1, None)  # if it dies before it can say
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _run(estimate, rank, threads, theirs)
        theirs.close()

    def receive(self) -> tuple[str, list[int]] | None:
        """What it tells of other ranks, or None when it has ended."""
        try:
            kind, told = self.pipe.recv()
        except EOFError:
            self.pipe.close()
            os.waitpid(self._pid, 0)
            return None
        if kind != "result":
            return kind, told
        self.result = told
        return self.receive()


def _run(estimate: Estimate, rank: int, threads: int, pipe: Connection) -> None:
    """In the new process, which ends here."""
    import torch

    status = 1
    try:
        torch.set_num_threads(threads)
        status, answer = estimate(rank, lambda kind, ranks: pipe.send((kind, ranks)))
        pipe.send(("result", (status, answer)))
        pipe.close()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
