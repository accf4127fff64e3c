"""What tracking costs: bare and tracked steps, interleaved, so that noise hits both alike.

python benchmarks/overhead.py                          op-bound on one CPU thread, and fake
python benchmarks/overhead.py --workloads FILE NAME…   steps of a workloads file, on CUDA
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import importlib.util
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import peakline

Step = Callable[[], None]


@dataclass
class Subject:
    """One training step, and what the trackers want to know about it."""

    step: Step
    model: nn.Module
    optimizer: torch.optim.Optimizer
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def op_bound(layers: int = 48, width: int = 32, batch: int = 8) -> Subject:
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers))
    )
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.randn(batch, width)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Subject(step, model, optimizer)


def fake_transformer(device: str = "cpu") -> Subject:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    with mode, torch.device(device):
        layers = [nn.TransformerEncoderLayer(256, 4, 512, 0.0, batch_first=True) for _ in range(6)]
        model = nn.Sequential(*layers)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        x = torch.randn(8, 64, 256)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Subject(step, model, optimizer, lambda: mode)


def from_file(path: str, name: str, device: str) -> Subject:
    spec = importlib.util.spec_from_file_location("workloads", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    state = module.W[name](device)

    def step() -> None:
        state.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return Subject(step, state.model, state.opt)


@contextlib.contextmanager
def tracked(subject: Subject, ops: bool = True) -> Iterator[Step]:
    with peakline.track(subject.model, subject.optimizer, ops=ops):
        yield subject.step


@contextlib.contextmanager
def upstream(subject: Subject) -> Iterator[Step]:
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(subject.model, subject.optimizer)

    def step() -> None:
        subject.step()
        tracker.reset_mod_stats()  # it refuses a second iteration otherwise

    with tracker:
        yield step


@contextlib.contextmanager
def profiled(subject: Subject) -> Iterator[Step]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=False):
        yield subject.step


@contextlib.contextmanager
def untracked(subject: Subject) -> Iterator[Step]:
    """What the method itself says about no tracker: how far a ratio can be trusted."""
    yield subject.step


WAYS: dict[str, Callable[[Subject], contextlib.AbstractContextManager[Step]]] = {
    "nothing": untracked,
    "track": tracked,
    "track, ops=False": lambda subject: tracked(subject, ops=False),
    "torch MemTracker": upstream,
    "torch.profiler, memory": profiled,
}

# Leaving it costs more the longer it ran, so every step pays its part.
WORKS_AT_THE_END = {"torch.profiler, memory"}

clock = time.perf_counter


def timed(step: Step, steps: int) -> list[float]:
    """Seconds of each step; Python collects its garbage between stretches, not inside them."""
    seconds = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(steps):
            start = clock()
            step()
            seconds.append(clock() - start)
    finally:
        gc.enable()
    return seconds


@dataclass
class Timings:
    """Stretches of steps, in seconds; a stretch is worth its middle step, so no hiccup is in it."""

    tracked: list[list[float]]
    bare: list[list[float]]  # one before and one after each tracked stretch
    leaving: list[float]  # seconds, once a run

    def ratios(self) -> list[float]:
        """Each tracked stretch's, to the bare ones around it."""
        bare = [statistics.median(stretch) for stretch in self.bare]
        return [
            statistics.median(stretch) / statistics.mean(bare[i : i + 2])
            for i, stretch in enumerate(self.tracked)
        ]

    def ratio_of_the_quickest(self) -> float:
        """Of the quickest tenths of all steps: what is left when nobody else uses the machine."""
        return quickest_tenth(self.tracked) / quickest_tenth(self.bare)


def quickest_tenth(stretches: list[list[float]]) -> float:
    seconds = sorted(second for stretch in stretches for second in stretch)
    return statistics.mean(seconds[: max(1, len(seconds) // 10)])


def interleaved(subject: Subject, way: str, pairs: int, steps: int, warmup: int) -> Timings:
    timings = Timings([], [], [])
    with subject.context():
        for _ in range(3):
            subject.step()
        timings.bare.append(timed(subject.step, steps))
        for _ in range(pairs):
            with WAYS[way](subject) as step:
                # Entering, first meetings, and the two steps that peakline needs to see that steps
                # repeat are not what a long run pays for.
                for _ in range(warmup):
                    step()
                stretch = timed(step, steps)
                start = time.perf_counter()
            timings.leaving.append(time.perf_counter() - start)
            if way in WORKS_AT_THE_END:
                part = timings.leaving[-1] / (warmup + steps)
                stretch = [second + part for second in stretch]
            timings.tracked.append(stretch)
            subject.step()
            timings.bare.append(timed(subject.step, steps))
    return timings


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 3:
        middle = statistics.median(values)
        return middle, min(values), max(values)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def measure(
    name: str, make: Callable[[], Subject], args: argparse.Namespace
) -> list[dict[str, Any]]:
    rows = []
    for way in args.ways:
        slow = way.startswith("torch")
        pairs = max(1, args.pairs // 4) if slow else args.pairs
        steps = max(1, args.steps // 8) if slow else args.steps
        subject = make()
        try:
            timings = interleaved(subject, way, pairs, steps, 1 if slow else args.warmup)
        except Exception as error:
            print(f"| {name} | {way} | failed: {type(error).__name__}: {str(error)[:99]} | | | | |")
            continue
        finally:
            del subject
            gc.collect()
        middle, low, high = quartiles(timings.ratios())
        quickest = timings.ratio_of_the_quickest()
        bare_ms = statistics.median(map(statistics.median, timings.bare)) * 1e3
        leaving_ms = statistics.median(timings.leaving) * 1e3
        print(
            f"| {name} | {way} | {middle:.3f}x | {low:.3f} to {high:.3f} "
            f"| {quickest:.3f}x | {leaving_ms:.1f} | {bare_ms:.3f} |",
            flush=True,
        )
        rows.append(
            {"case": name, "way": way, "ratio": middle, "low": low, "high": high,
             "quickest": quickest, "leaving_ms": leaving_ms, "bare_ms": bare_ms, "pairs": pairs,
             "steps": steps}
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="workloads of the file; all of it when none")
    parser.add_argument("--workloads", help="a Python file with W = {name: build(device)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3, help="tracked steps before the clock")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--cases", nargs="*", default=["op-bound", "fake"])
    parser.add_argument(
        "--clock",
        choices=["wall", "thread"],
        default="wall",
        help="thread: this thread's processor time, for machines that others use as well",
    )
    parser.add_argument("--json", help="write the rows there, too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    global clock
    clock = time.perf_counter if args.clock == "wall" else time.thread_time

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"{datetime.date.today()}, torch {torch.__version__}, {platform.machine()}, {gpu}")
    print("| case | tracker | step | quartiles | quickest tenth | leaving ms | bare ms |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    if args.workloads:
        for name in args.names:
            rows += measure(name, lambda n=name: from_file(args.workloads, n, args.device), args)  # type: ignore[misc]
    else:
        torch.set_num_threads(1)
        cases = {"op-bound": op_bound, "fake": fake_transformer}
        for name in args.cases:
            rows += measure(name, cases[name], args)
    if args.json:
        with open(args.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
