"""A second estimate of a compiled program beside its first: the code is found in peakline's cache.

python benchmarks/compiled_again.py [MODEL…]

The programs are those of tools/accuracy/compiled_models.py, four steps each. Every estimate is a
process of its own; the first begins with an empty cache. Seconds are the process's CPU time, so
that a busy machine counts for little. Imports are left out (torch, Dynamo, Inductor, peakline);
"steps" leaves out the building of the model, too, which draws its weights on the host.
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

TOOLS = Path(__file__).resolve().parents[1] / "tools"
STEPS = 4
WHOLE = "estimate"
PARTS = ("steps", WHOLE)


def estimate(name: str) -> dict[str, float]:
    sys.path.insert(0, str(TOOLS))
    for module in ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codegen.triton"):
        importlib.import_module(module)
    import peakline

    models = importlib.import_module("accuracy.compiled_models").MODELS
    imported = time.process_time()
    with peakline.virtual_gpu("h200"):
        step = models[name]("cuda")
        built = time.process_time()
        for _ in range(STEPS):
            step()
        done = time.process_time()
    return {"steps": done - built, WHOLE: done - imported, "imports": imported}


def in_child(name: str, cache: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", name],
        env=os.environ | {"XDG_CACHE_HOME": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare(names: list[str]) -> None:
    ratios: dict[str, list[float]] = {part: [] for part in PARTS}
    print(
        f"{'program':26}" + "".join(f"{part + ', first':>17} {'again':>6} ratio" for part in PARTS)
    )
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            first, again = in_child(name, cache), in_child(name, cache)
        cells = []
        for part in PARTS:
            ratios[part].append(again[part] / first[part])
            cells.append(f"{first[part]:15.2f} s {again[part]:4.2f} s {ratios[part][-1]:5.2f}")
        print(f"{name:26}" + "".join(cells), flush=True)
    for part, found in ratios.items():
        print(f"{part}: median {median(found):.2f}x, highest {max(found):.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(estimate(args.one)))
        return
    sys.path.insert(0, str(TOOLS))
    known = list(importlib.import_module("accuracy.compiled_models").MODELS)
    unknown = [name for name in args.models if name not in known]
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)} (there are {', '.join(known)})")
    compare(args.models or known)


if __name__ == "__main__":
    main()
