"""What tracking costs: bare and tracked steps, interleaved, so that noise hits both alike.

python benchmarks/overhead.py                          op-bound on one CPU thread, and fake
python benchmarks/overhead.py --workloads FILE [NAME…] steps of a workloads file, on CUDA
python benchmarks/overhead.py --pool RUN.json…         several runs' --json as one run
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import math
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import peakline
from workload_file import chosen, load

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


CASES = {"op-bound": op_bound, "fake": fake_transformer}


def from_file(path: str, name: str, device: str) -> Subject:
    state = load(path).W[name](device)

    def step() -> None:
        state.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return Subject(step, state.model, state.opt)


# Of each stretch that peakline tracked: whether steps were seen to repeat in it.
repeated: list[bool] = []


@contextlib.contextmanager
def tracked(subject: Subject, ops: bool = True, stacks: str = "large") -> Iterator[Step]:
    tracking = peakline.track(subject.model, subject.optimizer, ops=ops, stacks=stacks)
    with tracking:
        yield subject.step
        repeated.append(tracking._tracker.repeating)


@contextlib.contextmanager
def explained(subject: Subject) -> Iterator[Step]:
    """Memory does not run out. Where nobody tracks, it tracks by itself."""
    with tempfile.TemporaryDirectory() as folder, peakline.explain_oom(f"{folder}/oom.html"):
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
    "track, stacks=off": lambda subject: tracked(subject, stacks="off"),
    "track, stacks=all": lambda subject: tracked(subject, stacks="all"),
    "explain_oom": explained,
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

    tracked: list[list[float]] = field(default_factory=list)
    before: list[list[float]] = field(default_factory=list)  # bare, before each tracked stretch
    after: list[list[float]] = field(default_factory=list)
    leaving: list[float] = field(default_factory=list)  # seconds, once a run

    def ratios(self) -> list[float]:
        """Each tracked stretch's, to the bare ones around it."""
        middle = statistics.median
        return [
            middle(tracked) / statistics.mean((middle(before), middle(after)))
            for before, tracked, after in zip(self.before, self.tracked, self.after, strict=True)
        ]

    def bare_ms(self) -> float:
        return statistics.median(map(statistics.median, self.before)) * 1e3

    def ratio_of_all_steps(self) -> float:
        """Of the middle of all steps each: a slow stretch is a few steps among many here."""
        return middle_step(self.tracked) / middle_step(self.before + self.after)

    def ratio_of_the_quickest(self) -> float:
        """Of the quickest tenths of all steps: what is left when nobody else uses the machine."""
        # Each is a tenth of as many steps, since the quickest of more steps are quicker.
        bare = statistics.mean((quickest_tenth(self.before), quickest_tenth(self.after)))
        return quickest_tenth(self.tracked) / bare


def middle_step(stretches: list[list[float]]) -> float:
    return statistics.median(second for stretch in stretches for second in stretch)


def quickest_tenth(stretches: list[list[float]]) -> float:
    seconds = sorted(second for stretch in stretches for second in stretch)
    return statistics.mean(seconds[: max(1, len(seconds) // 10)])


def interleaved(
    subject: Subject, ways: list[str], pairs: int, steps: int, warmup: int, seconds: float
) -> dict[str, Timings]:
    """Bare, tracked in the first way, bare, in the second, …: all ways meet the same machine."""
    end = time.monotonic() + seconds
    timings = {way: Timings() for way in ways}
    with subject.context():
        for _ in range(3):
            subject.step()
        bare = timed(subject.step, steps)
        for pair in range(pairs):
            if pair > 0 and time.monotonic() > end:
                break
            for way in ways:
                timings[way].before.append(bare)
                timed_stretch(subject, way, steps, warmup, timings[way])
                subject.step()
                bare = timed(subject.step, steps)
                timings[way].after.append(bare)
    return timings


def timed_stretch(subject: Subject, way: str, steps: int, warmup: int, into: Timings) -> None:
    with WAYS[way](subject) as step:
        # Entering, first meetings, and the two steps that peakline needs to see that steps repeat
        # are not what a long run pays for.
        for _ in range(warmup):
            step()
        stretch = timed(step, steps)
        start = time.perf_counter()
    into.leaving.append(time.perf_counter() - start)
    if way in WORKS_AT_THE_END:
        part = into.leaving[-1] / (warmup + steps)
        stretch = [second + part for second in stretch]
    into.tracked.append(stretch)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 3:
        middle = statistics.median(values)
        return middle, min(values), max(values)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def surely(values: list[float]) -> tuple[float, float]:
    """Where the median of ever more such values lies, at 19 to 1: between two of the sorted."""
    ordered = sorted(values)
    rank = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[rank], ordered[-1 - rank]


def measure(
    name: str, make: Callable[[], Subject], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """peakline's ways side by side; torch's, which take many times as long, one by one."""
    quick = [way for way in args.ways if not way.startswith("torch")]
    slow = [[way] for way in args.ways if way.startswith("torch")]
    rows = []
    for ways in ([quick] if quick else []) + slow:
        torchs = ways != quick
        pairs = max(1, args.pairs // 4) if torchs else args.pairs
        steps = max(1, args.steps // 8) if torchs else args.steps
        subject = make()
        try:
            warmup = 1 if torchs else args.warmup
            timings = interleaved(subject, ways, pairs, steps, warmup, args.seconds)
        except Exception as error:
            what = f"failed: {type(error).__name__}: {str(error)[:99]}"
            print(f"| {name} | {', '.join(ways)} | {what} | | | | | | | |")
            continue
        finally:
            del subject
            gc.collect()
        rows += [row(name, way, timings[way], steps) for way in ways]
    return rows


def print_heading() -> None:
    print(
        "| case | tracker | step | 19 to 1 | quartiles | all steps | quickest tenth | leaving ms "
        "| bare ms | pairs |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")


def row(name: str, way: str, timings: Timings, steps: int) -> dict[str, Any]:
    ratios = timings.ratios()
    middle, low, high = quartiles(ratios)
    at_least, at_most = surely(ratios)
    quickest = timings.ratio_of_the_quickest()
    all_steps = timings.ratio_of_all_steps()
    leaving_ms = statistics.median(timings.leaving) * 1e3
    print(
        f"| {name} | {way} | {middle:.3f}x | {at_least:.3f} to {at_most:.3f} "
        f"| {low:.3f} to {high:.3f} | {all_steps:.3f}x | {quickest:.3f}x | {leaving_ms:.1f} "
        f"| {timings.bare_ms():.3f} | {len(ratios)} |",
        flush=True,
    )
    return {
        "case": name, "way": way, "ratio": middle, "at_least": at_least, "at_most": at_most,
        "low": low, "high": high, "all_steps": all_steps, "quickest": quickest,
        "leaving_ms": leaving_ms, "bare_ms": timings.bare_ms(),
        "pairs": len(ratios), "steps": steps,
        "before": timings.before, "tracked": timings.tracked, "after": timings.after,
        "leaving": timings.leaving,
    }  # fmt: skip


def bare_among_bare(runs: list[Timings]) -> Timings:
    """Every second bare stretch with the bare ones around it, as if it had been tracked."""
    among = Timings()
    for run in runs:
        bare = [*run.before, run.after[-1]]
        among.tracked += bare[1:-1:2]
        among.before += bare[:-2:2]
        among.after += bare[2::2]
    among.leaving = [0.0] * len(among.tracked)
    return among


def pool(paths: list[str]) -> None:
    """Runs of one command that a lent machine's time kept apart, as one."""
    runs: dict[tuple[str, str, int], list[Timings]] = {}
    for path in paths:
        with open(path) as file:
            for run in json.load(file):
                of_run = Timings(run["tracked"], run["before"], run["after"], run["leaving"])
                runs.setdefault((run["case"], run["way"], run["steps"]), []).append(of_run)
    print_heading()
    for (name, way, steps), parts in runs.items():
        together = Timings()
        for part in parts:
            together.tracked += part.tracked
            together.before += part.before
            together.after += part.after
            together.leaving += part.leaving
        row(name, way, together, steps)
        row(name, "its bare steps", bare_among_bare(parts), steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="workloads of the file; all of it when none")
    parser.add_argument("--workloads", help="a Python file with W = {name: build(device)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no pair after so many, in each case"
    )
    parser.add_argument("--warmup", type=int, default=3, help="tracked steps before the clock")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument(
        "--clock",
        choices=["wall", "thread"],
        default="wall",
        help="thread: this thread's processor time, for machines that others use as well",
    )
    parser.add_argument("--json", help="write the rows there, too")
    parser.add_argument("--pool", nargs="+", metavar="JSON", help="read these, measure nothing")
    args = parser.parse_args()
    if args.pool:
        try:
            return pool(args.pool)
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"cannot read what --json wrote: {type(error).__name__}: {error}")
    if args.names and not args.workloads:
        parser.error("names are of workloads, so they need --workloads FILE; see also --cases")
    names = chosen(parser, args.names, load(args.workloads).W) if args.workloads else []
    warnings.simplefilter("ignore")
    global clock
    clock = time.perf_counter if args.clock == "wall" else time.thread_time

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"{datetime.date.today()}, torch {torch.__version__}, {platform.machine()}, {gpu}")
    print_heading()
    rows = []
    if args.workloads:
        for name in names:
            rows += measure(name, lambda n=name: from_file(args.workloads, n, args.device), args)  # type: ignore[misc]
    else:
        torch.set_num_threads(1)
        for name in args.cases:
            rows += measure(name, CASES[name], args)
    if repeated:
        print(f"Steps were seen to repeat in {sum(repeated)} of {len(repeated)} tracked stretches.")
    if args.json:
        with open(args.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
