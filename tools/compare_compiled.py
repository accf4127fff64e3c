#!/usr/bin/env python3
"""Compiled models: predicted on a virtual H200, measured on a real GPU, side by side.

    tools/compare_compiled.py --predict predictions.json            # anywhere
    tools/compare_compiled.py --measure measured.json               # on the GPU
    tools/compare_compiled.py --compare predictions.json measured.json
    tools/compare_compiled.py --both DIR                            # one machine, all of it
    tools/compare_compiled.py --models liger_models --both DIR      # other programs

Every model runs in a process of its own, with empty Inductor caches. Peaks are those of each of
four steps; the time of a first step is mostly that of compiling it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

TOOLS = Path(__file__).parent
STEPS = 4


def programs(models: str) -> dict[str, Any]:
    sys.path.insert(0, str(TOOLS))
    found: dict[str, Any] = importlib.import_module(f"accuracy.{models}").MODELS
    return found


def run_one(models: str, name: str, virtual: bool) -> dict[str, Any]:
    import torch

    build = programs(models)[name]
    if virtual:
        import peakline

        gpu = peakline.virtual_gpu("h200")
        with gpu:
            found = peaks(build)
        return {**found, "torch": torch.__version__, "notes": gpu.notes()}
    return {**peaks(build), "torch": torch.__version__}


def peaks(build: Any) -> dict[str, Any]:
    import torch

    step = build("cuda")
    steps, requested, seconds = [], [], []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - start, 3))
        steps.append([torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()])
        requested.append(torch.cuda.memory_stats()["requested_bytes.all.peak"])
    return {"steps": steps, "requested": requested, "seconds": seconds}


def run_all(models: str, virtual: bool, only: list[str]) -> dict[str, Any]:
    return {name: run_alone(models, name, virtual) for name in only or programs(models)}


def run_alone(models: str, name: str, virtual: bool) -> dict[str, Any]:
    """In a process of its own. Predicted twice: the second time finds the first one's code."""
    print(f"{'predicting' if virtual else 'measuring'} {name}", file=sys.stderr)
    command = [sys.executable, __file__, "--models", models, "--one", name]
    command += ["--virtual"] if virtual else []
    with tempfile.TemporaryDirectory() as cache:
        where = {
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "TRITON_CACHE_DIR": cache + "/triton",
            "XDG_CACHE_HOME": cache,
        }
        first = result_of(command, where)
        if virtual and "seconds" in first:
            first["seconds_again"] = result_of(command, where).get("seconds")
    return first


def result_of(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"error": done.stderr.strip().splitlines()[-1:]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def compare(predicted: dict[str, Any], measured: dict[str, Any]) -> None:
    errors = []
    print(f"{'model':26} {'allocated':>14} {'error':>8} {'reserved':>14} {'error':>8}  first step")
    for name, real in measured.items():
        guess = predicted.get(name, {})
        if "steps" not in real or "steps" not in guess:
            print(f"{name:26} failed: {real.get('error') or guess.get('error')}")
            continue
        rows = [[max(step[i] for step in x["steps"]) for i in (0, 1)] for x in (guess, real)]
        off = [100 * (a - b) / b for a, b in zip(*rows, strict=True)]
        first = 100 * (guess["steps"][0][0] / real["steps"][0][0] - 1)
        errors.append(abs(off[0]))
        print(
            f"{name:26} {rows[1][0]:14,} {off[0]:+7.2f}% {rows[1][1]:14,} {off[1]:+7.2f}%  "
            f"{first:+.2f}%"
        )
    compare_requested(predicted, measured)
    compare_times(predicted, measured)
    if errors:
        print(f"median error of allocated {median(errors):.2f}%, largest {max(errors):.2f}%")


def compare_requested(predicted: dict[str, Any], measured: dict[str, Any]) -> None:
    """What was asked for has no rest of a block that was not worth splitting: where it is the same
    and what was allocated is not, blocks were only taken in another order."""
    for name, real in measured.items():
        guess = predicted.get(name, {})
        if "requested" in real and "requested" in guess:
            off = [a - b for a, b in zip(guess["requested"], real["requested"], strict=True)]
            print(f"{name:26} asked for, predicted less real in bytes: {off}")


def compare_times(predicted: dict[str, Any], measured: dict[str, Any]) -> None:
    """Of first steps: real, virtual, and virtual with the code of the one before."""
    for name, real in measured.items():
        guess = predicted.get(name, {})
        if "seconds" not in real or not guess.get("seconds_again"):
            continue
        there, here = real["seconds"][0], guess["seconds"][0]
        again = guess["seconds_again"][0]
        print(
            f"{name:26} first step: {there:.1f} s real, {here:.1f} s virtual "
            f"({here / there:.2f}x), again {again:.1f} s ({again / here:.2f}x)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predict", metavar="FILE")
    parser.add_argument("--measure", metavar="FILE")
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    parser.add_argument("--both", metavar="DIR")
    parser.add_argument("--only", action="append", default=[], metavar="MODEL")
    parser.add_argument("--models", default="compiled_models", help="of tools/accuracy")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--virtual", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_one(args.models, args.one, args.virtual)))
        return
    if args.both:
        folder = Path(args.both)
        args.predict, args.measure = folder / "predicted.json", folder / "measured.json"
        args.compare = [args.predict, args.measure]
    for path, virtual in ((args.predict, True), (args.measure, False)):
        if path:
            found = run_all(args.models, virtual, args.only)
            Path(path).write_text(json.dumps(found, indent=1) + "\n")
    if args.compare:
        compare(*(json.loads(Path(path).read_text()) for path in args.compare))


if __name__ == "__main__":
    main()
