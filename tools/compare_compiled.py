#!/usr/bin/env python3
"""Compiled models: predicted on a virtual H200, measured on a real GPU, side by side.

    tools/compare_compiled.py --predict predictions.json            # anywhere
    tools/compare_compiled.py --measure measured.json               # on the GPU
    tools/compare_compiled.py --compare predictions.json measured.json
    tools/compare_compiled.py --both DIR                            # one machine, all of it

Every model runs in a process of its own, with an empty Inductor cache where it is measured. Peaks
are those of each of four steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

TOOLS = Path(__file__).parent
STEPS = 4


def run_one(name: str, virtual: bool) -> dict[str, Any]:
    import torch

    sys.path.insert(0, str(TOOLS))
    if virtual:
        import peakline

        gpu = peakline.virtual_gpu("h200")
        with gpu:
            found = peaks(name)
        return {**found, "torch": torch.__version__, "notes": gpu.notes()}
    return {**peaks(name), "torch": torch.__version__}


def peaks(name: str) -> dict[str, Any]:
    import torch

    from accuracy.compiled_models import MODELS

    step = MODELS[name]("cuda")
    steps = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        steps.append([torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()])
    return {"steps": steps}


def run_all(virtual: bool, only: list[str]) -> dict[str, Any]:
    sys.path.insert(0, str(TOOLS))
    from accuracy.compiled_models import MODELS

    found = {}
    for name in only or MODELS:
        print(f"{'predicting' if virtual else 'measuring'} {name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as cache:
            where = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache + "/triton"}
            command = [sys.executable, __file__, "--one", name, *(["--virtual"] if virtual else [])]
            done = subprocess.run(
                command, env=os.environ | where, capture_output=True, text=True, check=False
            )
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            found[name] = {"error": done.stderr.strip().splitlines()[-1:]}
        else:
            found[name] = json.loads(lines[-1])
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
    if errors:
        print(f"median error of allocated {median(errors):.2f}%, largest {max(errors):.2f}%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predict", metavar="FILE")
    parser.add_argument("--measure", metavar="FILE")
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    parser.add_argument("--both", metavar="DIR")
    parser.add_argument("--only", action="append", default=[], metavar="MODEL")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--virtual", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_one(args.one, args.virtual)))
        return
    if args.both:
        folder = Path(args.both)
        args.predict, args.measure = folder / "predicted.json", folder / "measured.json"
        args.compare = [args.predict, args.measure]
    for path, virtual in ((args.predict, True), (args.measure, False)):
        if path:
            Path(path).write_text(json.dumps(run_all(virtual, args.only), indent=1) + "\n")
    if args.compare:
        compare(*(json.loads(Path(path).read_text()) for path in args.compare))


if __name__ == "__main__":
    main()
