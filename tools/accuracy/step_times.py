"""Step times, predicted on a virtual GPU and measured on a real one.

    python tools/accuracy/step_times.py predict -o predicted.jsonl [--workloads FILE.py] [NAME ...]
    python tools/accuracy/step_times.py measure -o measured.jsonl  [--workloads FILE.py] [NAME ...]
    python tools/accuracy/step_times.py upstream -o upstream.jsonl [--workloads FILE.py] [NAME ...]
    python tools/accuracy/step_times.py compare predicted.jsonl measured.jsonl [upstream.jsonl]

FILE.py has W = {name: build(device)}, and what build gives has step(). Without it: the models of
docs/accuracy.md and three programs of two streams. Every workload runs in a process of its own.
Predictions need no GPU; make and keep them before measuring. `upstream` asks torch's
RuntimeEstimator for its cost model's answer, which reads the rates of the real GPU.
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
    from accuracy import (
        blind_models,
        fresh_models,
        later_zoo_models,
        models,
        program_models,
        stream_programs,
        unseen_models,
        zoo_models,
    )

    trained = {name: build for name, build in zoo_models.MODELS.items() if "generate" not in name}
    known = (models.MODELS, fresh_models.MODELS, unseen_models.MODELS, trained)
    later = (
        later_zoo_models.MODELS,
        program_models.MODELS,
        blind_models.MODELS,
        stream_programs.PROGRAMS,
    )
    return {name: build for part in (*known, *later) for name, build in part.items()}


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
    peak = _C.cost.Profile(gpu).peak_tflops * 1e9  # operations a millisecond
    by_peak = {"flops_over_peak_ms": found["flops"] / peak}
    return {**{new: found[old] for old, new in names.items()}, **kept, **by_peak}


def upstream(build: Callable[[str], Any], _: str) -> dict[str, Any]:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator

    with FakeTensorMode(allow_non_fake_inputs=True):
        step = stepper(build)
        step()
        estimator = RuntimeEstimator()
        with estimator(estimate_mode_type="operator-level-cost-model"):
            step()
    return {"upstream_ms": estimator.total_runtime}


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
    action = {"predict": predict, "measure": measure, "upstream": upstream}[args.action]
    print(json.dumps({"name": args.one, **action(builders(args.workloads)[args.one], args.gpu)}))
    return 0


def read(path: str) -> dict[str, Any]:
    rows = map(json.loads, Path(path).read_text().splitlines())
    return {row["name"]: row for row in rows}


def compare(predicted: str, measured: str, beside: str | None = None) -> int:
    """Step and busy time; FLOPs over peak and upstream's model mean busy time."""
    ours, theirs, others = read(predicted), read(measured), read(beside) if beside else {}
    print(f"{'workload':28} {'step ms':>18} {'':>7} {'GPU busy ms':>18} {'':>7} {'by peak':>8}")
    errors: dict[str, list[float]] = {}
    for name in theirs:
        if name not in ours:
            continue
        busy = theirs[name].get("gpu_busy_ms")
        cells = [
            _cell(errors, key, ours[name].get(key), theirs[name].get(key))
            for key in ("step_ms", "gpu_busy_ms")
        ]
        flops = _error(errors, "FLOPs over peak", ours[name].get("flops_over_peak_ms"), busy)
        other = _error(errors, "upstream", others.get(name, {}).get("upstream_ms"), busy)
        print(f"{name:28} {cells[0]} {cells[1]} {flops} {other}  {ours[name]['bound_by']}")
    for key, found in errors.items():
        middle, most = 100 * statistics.median(found), 100 * max(found)
        print(f"{key}: median {middle:.1f}%, most {most:.1f}%, of {len(found)}")
    return 0


def _error(errors: dict[str, list[float]], key: str, a: float | None, b: float | None) -> str:
    if a is None or not b:
        return f"{'':8}"
    errors.setdefault(key, []).append(abs(a / b - 1))
    return f"{100 * (a / b - 1):+7.1f}%"


def _cell(errors: dict[str, list[float]], key: str, a: float | None, b: float | None) -> str:
    told = [f"{value:8.2f}" if value is not None else f"{'':8}" for value in (a, b)]
    return f"{told[0]} {told[1]:>9} {_error(errors, key, a, b)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["predict", "measure", "upstream", "compare"])
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
