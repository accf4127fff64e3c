"""Step times, predicted on a virtual GPU and measured on a real one.

    python tools/accuracy/step_times.py predict -o predicted.jsonl [--workloads FILE.py] [NAME ...]
    python tools/accuracy/step_times.py measure -o measured.jsonl  [--workloads FILE.py] [NAME ...]
    python tools/accuracy/step_times.py compare predicted.jsonl measured.jsonl

FILE.py has W = {name: build(device)}, and what build gives has step(). Without it: the models of
docs/accuracy.md and three programs of two streams. Every workload runs in a process of its own.
Predictions need no GPU; make and keep them before measuring.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]
_WARM_UP, _TIMED = 3, 10


def builders(path: str | None) -> dict[str, Callable[[str], Any]]:
    if path is not None:
        import workload_file  # type: ignore[import-not-found,unused-ignore]

        found: dict[str, Callable[[str], Any]] = workload_file.load(path).W
        return found
    from accuracy import fresh_models, models, stream_programs

    return {**models.MODELS, **fresh_models.MODELS, **stream_programs.PROGRAMS}


def stepper(build: Callable[[str], Any]) -> Callable[[], Any]:
    made = build("cuda")
    step: Callable[[], Any] = getattr(made, "step", made)
    return step


def predict(build: Callable[[str], Any], gpu: str) -> dict[str, Any]:
    import peakline
    from peakline import _C

    with peakline.virtual_gpu(gpu):
        step = stepper(build)
        before = None
        for _ in range(_WARM_UP):
            step()
            before = _C.vgpu.timing()
        assert before is not None
        step()
        found = _C.vgpu.timing().since(before).to_dict()
    names = {"elapsed_ms": "step_ms", "gpu_busy_ms": "gpu_busy_ms", "host_ms": "host_ms"}
    kept = {key: found[key] for key in ("bound_by", "ops", "kernels", "latency_ms")}
    return {**{new: found[old] for old, new in names.items()}, **kept}


def measure(build: Callable[[str], Any], _: str) -> dict[str, Any]:
    import torch

    step = stepper(build)
    for _i in range(_WARM_UP):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _i in range(_TIMED):
        step()
    torch.cuda.synchronize()
    step_ms = 1e3 * (time.perf_counter() - begin) / _TIMED
    return {"step_ms": step_ms, "gpu_busy_ms": _busy_ms(step)}


def _busy_ms(step: Callable[[], Any]) -> float:
    """How long at least one kernel or copy ran in a step, by torch's profiler."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        step()
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in seen.events() or []
        if str(event.device_type).endswith("CUDA")
    )
    busy, reached = 0.0, float("-inf")
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy / 1e3


def run_all(args: argparse.Namespace) -> int:
    names = args.names or list(builders(args.workloads))
    with Path(args.output).open("w") as out:
        for name in names:
            command = [sys.executable, __file__, args.action, "--one", name, "--gpu", args.gpu]
            command += ["--workloads", args.workloads] if args.workloads else []
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = done.stdout.strip().splitlines()
            if done.returncode or not lines:
                why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
                print(f"{name}: {why}", file=sys.stderr)
                continue
            print(lines[-1], file=out, flush=True)
            print(lines[-1])
    return 0


def run_one(args: argparse.Namespace) -> int:
    action = predict if args.action == "predict" else measure
    print(json.dumps({"name": args.one, **action(builders(args.workloads)[args.one], args.gpu)}))
    return 0


def read(path: str) -> dict[str, Any]:
    rows = map(json.loads, Path(path).read_text().splitlines())
    return {row["name"]: row for row in rows}


def compare(predicted: str, measured: str) -> int:
    ours, theirs = read(predicted), read(measured)
    print(f"{'workload':28} {'step ms':>18} {'':>7} {'GPU busy ms':>18}")
    errors: dict[str, list[float]] = {"step_ms": [], "gpu_busy_ms": []}
    for name in theirs:
        if name not in ours:
            continue
        cells = []
        for key, found in errors.items():
            a, b = ours[name][key], theirs[name].get(key) or float("nan")
            if b == b:
                found.append(abs(a / b - 1))
            cells.append(f"{a:8.2f} {b:9.2f} {100 * (a / b - 1):+6.1f}%")
        print(f"{name:28} {cells[0]} {cells[1]}  {ours[name]['bound_by']}")
    for key, found in errors.items():
        if found:
            print(
                f"{key}: median {100 * statistics.median(found):.1f}%, most {100 * max(found):.1f}%"
            )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["predict", "measure", "compare"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", dest="output", default="step_times.jsonl")
    parser.add_argument("--workloads")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_intermixed_args()
    if args.action == "compare":
        return compare(*args.names)
    return run_one(args) if args.one else run_all(args)


if __name__ == "__main__":
    sys.exit(main())
