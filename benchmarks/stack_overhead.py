"""What call stacks cost: steps of a virtual GPU and of an op-bound CPU program, with and without.

    python benchmarks/stack_overhead.py [--pairs N] [--seconds S] [--only TEXT] [--cpu-time]
        [--device cuda] [--json FILE]

Stretches with and without stacks take turns in one process, so that noise hits both alike. A
stretch is worth its middle step; a ratio is the median over the pairs, with the interval in which
it lies at 19 to 1. `--cpu-time` counts the time that the program's own thread was computing, for a
machine that others use, too. torch's profiler with memory and stacks stands beside, memray where it
is installed, and with `--device cuda`, which runs the op-bound program on a GPU, torch's history of
the allocator, with stacks of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import peakline
from overhead import surely

STEPS = 12  # of a stretch; the first three are left out


class OpBound(nn.Module):
    """Layers so small that only the number of ops counts."""

    def __init__(self, layers: int = 48) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


clock: Callable[[], float] = time.perf_counter
device = "cpu"


def stretch(step: Callable[[], None]) -> float:
    times = []
    for _ in range(STEPS):
        begin = clock()
        step()
        times.append(clock() - begin)
    return statistics.median(times[3:])


def training(device: str) -> Callable[[], None]:
    model = OpBound().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(8, 16, device=device)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda" and torch.cuda.is_available() and x.is_cuda:
            torch.cuda.synchronize()

    return step


def virtual(stacks: str) -> float:
    gpu = peakline.virtual_gpu()
    gpu._stacks = stacks
    with gpu:
        return stretch(training("cuda"))


def varied(step: Callable[[], None]) -> Callable[[], None]:
    """Steps that never repeat, so that every op is watched: the worst case."""
    sizes = iter(range(1, 1_000_000))

    def changed() -> None:
        torch.empty(next(sizes), device=device)
        step()

    return changed


def op_bound(watch: Callable[[], contextlib.AbstractContextManager[Any]], repeats: bool) -> float:
    with watch():
        step = training(device)
        return stretch(step if repeats else varied(step))


@contextlib.contextmanager
def under_memray() -> Iterator[None]:
    import memray

    with tempfile.TemporaryDirectory() as folder, memray.Tracker(Path(folder, "out.bin")):
        yield


@contextlib.contextmanager
def under_history() -> Iterator[None]:
    history: Any = torch.cuda.memory._record_memory_history
    history(stacks="python")
    try:
        yield
    finally:
        history(enabled=None)


def under_profiler() -> contextlib.AbstractContextManager[Any]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    return torch.profiler.profile(activities=activities, profile_memory=True, with_stack=True)


def ratio(
    pairs: int, seconds: float, with_it: Callable[[], float], without: Callable[[], float]
) -> dict[str, Any]:
    ratios, bare = [], []
    end = time.monotonic() + seconds
    for i in range(pairs):
        if i > 0 and time.monotonic() > end:
            break
        order = (with_it, without) if i % 2 else (without, with_it)
        measured = {one: one() for one in order}
        ratios.append(measured[with_it] / measured[without])
        bare.append(measured[without])
    at_least, at_most = surely(ratios)
    return {
        "ratio": statistics.median(ratios),
        "from": at_least,
        "to": at_most,
        "pairs": len(ratios),
        "without_ms": 1000 * statistics.median(bare),
    }


Measured = Callable[[], float]


def cases() -> Iterator[tuple[str, Measured, Measured]]:
    """A name; with it; without."""
    yield "virtual step", partial(virtual, "all"), partial(virtual, "off")
    for repeats in (True, False):
        name = "op-bound, " + ("steps that repeat" if repeats else "steps that never repeat")
        bare = partial(op_bound, contextlib.nullcontext, repeats)
        tracked = {
            stacks: partial(op_bound, partial(peakline.track, stacks=stacks), repeats)
            for stacks in ("off", "large", "all")
        }
        for stacks, measured in tracked.items():
            yield f"{name}: {stacks}", measured, bare
        yield f"{name}: all, beside off", tracked["all"], tracked["off"]
        without_ops = partial(peakline.track, stacks="all", ops=False)
        yield f"{name}: all, no op names", partial(op_bound, without_ops, repeats), bare
        if device == "cuda":
            yield f"{name}: torch's history", partial(op_bound, under_history, repeats), bare
        yield f"{name}: torch.profiler", partial(op_bound, under_profiler, repeats), bare
        if importlib.util.find_spec("memray") is not None:
            yield f"{name}: memray", partial(op_bound, under_memray, repeats), bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=81)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no pair after so many, in each case"
    )
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cpu-time", action="store_true", help="of the program's own thread")
    parser.add_argument("--json")
    args = parser.parse_args()
    global clock, device
    device = args.device
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU for --device cuda")
    if args.cpu_time:
        clock = time.thread_time
    torch.set_num_threads(1)
    found = {}
    for name, with_it, without in cases():
        if args.only not in name:
            continue
        found[name] = row = ratio(args.pairs, args.seconds, with_it, without)
        print(
            f"{name:<42} {row['ratio']:.3f}x ({row['from']:.3f} to {row['to']:.3f}), "
            f"without {row['without_ms']:.2f} ms, {row['pairs']} pairs",
            flush=True,
        )
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
