"""Large programs, tracked: 10,000 modules, eight threads that allocate at once, 4,096 ranks merged.

    python benchmarks/load_programs.py PEAKLINE [--modules 10000] [--threads 8] [--ranks 4096]

Ends with 1 where a number is not the one that follows from the program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn

import peakline

ALLOCATIONS = 20_000  # of each thread
ESTIMATED = 64  # ranks; the others are links to these

PROBE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


class Block(nn.Module):
    """Four modules, itself among them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.up(self.norm(x)))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    begin = time.process_time()
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
    return time.process_time() - begin


def modules(count: int) -> str:
    model = nn.Sequential(*(Block(64) for _ in range(count // 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step(model, optimizer)
    bare = min(step(model, optimizer) for _ in range(3))
    with peakline.track(model, optimizer) as run:
        tracked = [step(model, optimizer) for _ in range(4)]
    named = {part.path for part in run.modules()}
    parameters = sum(one.numel() * one.element_size() for one in model.parameters())
    assert len(named) >= count, f"{len(named)} modules of {count}"
    assert run.peak().by_category["Parameter"] == parameters
    assert run.peak().by_category["Optstate"] >= 2 * parameters
    return (
        f"| {len(named):,} modules, a step of training | every module named, parameters "
        f"{parameters:,} bytes as the model has | {bare:.2f} s bare, {tracked[0]:.2f} s the first, "
        f"{min(tracked[1:]):.2f} s later |"
    )


def threads(count: int) -> str:
    def work() -> None:
        for i in range(ALLOCATIONS):
            torch.empty(256 + i % 64, dtype=torch.uint8)

    workers = [threading.Thread(target=work) for _ in range(count)]
    with peakline.track(ops=False) as run:
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - begin
    answer = json.loads(run.to_json())
    wanted = count * ALLOCATIONS
    events = answer["events"]
    assert events >= 2 * wanted, f"{events} events for {wanted} tensors"
    assert run.warnings == [], run.warnings
    seen = f"{events:,} events, nothing lost"
    return f"| {count} threads, {wanted:,} tensors | {seen} | {seconds:.1f} s |"


def estimate(path: Path, layers: int) -> None:
    with peakline.virtual_gpu("h100", path=path, stand_ins=False):
        model = nn.Sequential(*(Block(1024) for _ in range(layers))).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(64, 1024, device="cuda")).sum().backward()
            optimizer.step()


def ranks(program: str, count: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank in range(min(ESTIMATED, count)):
            estimate(folder / f"run.{rank}.peak", 1 + rank % 16)
        for rank in range(ESTIMATED, count):
            os.symlink(folder / f"run.{rank % ESTIMATED}.peak", folder / f"run.{rank}.peak")
        files = [str(folder / f"run.{rank}.peak") for rank in range(count)]
        answer = folder / "merged.json"
        # A small process starts it: a child's memory counts from before it is another program.
        probe = [sys.executable, "-c", PROBE, program, "merge", *files, "--json", str(answer)]
        done = subprocess.run(probe, stdout=subprocess.PIPE, text=True, check=True)
        cpu, memory = map(float, done.stdout.split()[-2:])
        merged = json.loads(answer.read_text())
    assert merged["recordings"] == count
    return (
        f"| {count:,} ranks merged, {ESTIMATED} of them estimated | all read | {cpu:.1f} s of CPU, "
        f"{memory:.0f} MiB |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peakline")
    parser.add_argument("--modules", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=4096)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| Program | What was seen | Cost |\n|---|---|---|")
    print(modules(args.modules), flush=True)
    print(threads(args.threads), flush=True)
    print(ranks(args.peakline, args.ranks), flush=True)


if __name__ == "__main__":
    main()
