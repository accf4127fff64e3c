"""What the drop-in trackers cost: a step bare and tracked, in turns, with upstream's beside them.

    python benchmarks/dropin_overhead.py [--device cpu|cuda] [--pairs N] [--json FILE]

Each row is one way to run the same step. Rounds go through all ways in turn, so that drift of the
machine falls on all of them; a ratio is the median over rounds of (tracked / bare in that round),
with the quartiles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import peakline.mem_tracker
import peakline.memory_tracker
import peakline.mod_tracker

Step = Callable[[], None]
Way = Callable[[nn.Module, torch.optim.Optimizer], contextlib.AbstractContextManager[Any]]


class TinyLayers(nn.Module):
    """Op-bound: many small layers, so that every microsecond per operator shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16)) for _ in range(48)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def tiny(device: str) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    with torch.device(device):
        model = TinyLayers()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    return model, optimizer, torch.randn(4, 16, device=device)


def transformer(device: str) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    width, depth = (1024, 12) if device == "cuda" else (256, 4)
    with torch.device(device):
        layers = [
            nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True) for _ in range(depth)
        ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, torch.randn(8, 128, width, device=device)


def bare(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    return contextlib.nullcontext()


def mem_tracker(module: Any) -> Way:
    def way(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        tracker = module.MemTracker()
        tracker.track_external(model, optimizer)
        return tracker

    return way


def mod_tracker(module: Any) -> Way:
    return lambda model, optimizer: module.ModTracker()


def memory_tracker(module: Any) -> Way:
    @contextlib.contextmanager
    def way(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        tracker = module.MemoryTracker()
        tracker.start_monitor(model)
        yield
        tracker.stop()

    return way


def ways(device: str, fake: bool) -> dict[str, Way]:
    import torch.distributed._tools.mem_tracker as up_mem
    import torch.distributed._tools.memory_tracker as up_memory
    import torch.distributed._tools.mod_tracker as up_mod

    rows = {
        "bare": bare,
        "ModTracker": mod_tracker(peakline.mod_tracker),
        "ModTracker, upstream": mod_tracker(up_mod),
        "MemTracker": mem_tracker(peakline.mem_tracker),
        "MemTracker, upstream": mem_tracker(up_mem),
    }
    if not fake:
        rows["MemoryTracker"] = memory_tracker(peakline.memory_tracker)
    if device == "cuda" and not fake:
        rows["MemoryTracker, upstream"] = memory_tracker(up_memory)
    return rows


def timed(step: Step, steps: int, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def measure(name: str, build: Any, device: str, fake: bool, pairs: int, steps: int) -> list[Any]:
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, optimizer, x = build(device)

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        times: dict[str, list[float]] = {way: [] for way in ways(device, fake)}
        for _ in range(pairs):
            for way, make in ways(device, fake).items():
                # Upstream's tracker takes one iteration: it enters anew for each.
                once = "upstream" in way
                with make(model, optimizer) as tracker:
                    step()
                    if once and hasattr(tracker, "reset_mod_stats"):
                        tracker.reset_mod_stats()
                    times[way].append(timed(step, 1 if once else steps, device))
    rows = []
    for way, seconds in times.items():
        ratios = [t / b for t, b in zip(seconds, times["bare"], strict=True)]
        low, mid, high = statistics.quantiles(ratios, n=4)
        milliseconds = statistics.median(seconds) * 1e3
        rows.append({"workload": name, "way": way, "ms": milliseconds, "ratio": [low, mid, high]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, build, device, fake in (
        ("48 tiny layers, cpu", tiny, "cpu", False),
        (f"transformer, {args.device}", transformer, args.device, False),
        ("transformer, FakeTensorMode", transformer, "cpu", True),
    ):
        rows += measure(name, build, device, fake, args.pairs, args.steps)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}")
    print(f"{'workload':<30}{'way':<26}{'ms/step':>10}{'ratio':>8}   quartiles")
    for row in rows:
        low, mid, high = row["ratio"]
        line = f"{row['workload']:<30}{row['way']:<26}{row['ms']:>10.2f}{mid:>7.2f}x"
        print(f"{line}   {low:.2f} to {high:.2f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
