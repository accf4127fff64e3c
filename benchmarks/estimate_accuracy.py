"""Estimates beside what a real GPU measured.

python benchmarks/estimate_accuracy.py WORKLOADS.py TRUTH.jsonl [NAME…]

WORKLOADS.py builds training steps by name; each line of TRUTH.jsonl has a name and, for
"after_build" and "step1" to "step3", the allocator's peaks on the real GPU in bytes. --torch names
the release that they were measured with: its allocator's rules are followed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from workload_file import chosen, load

STAGES = ("after_build", "step1", "step2", "step3")


def estimate(path: str, name: str, gpu: str) -> dict[str, Any]:
    """The same numbers as the real run's, asked for in the same way."""
    import torch

    import peakline

    def peaks() -> dict[str, int]:
        return {
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
        }

    found: dict[str, Any] = {}
    with peakline.virtual_gpu(gpu):
        workload = load(path).W[name]("cuda")
        found["after_build"] = peaks()
        for stage in STAGES[1:]:
            torch.cuda.reset_peak_memory_stats()
            workload.step()
            found[stage] = peaks()
        found["counters"] = peakline._C.vgpu.counters()
    return found


def in_child(args: argparse.Namespace, name: str) -> dict[str, Any]:
    command = [sys.executable, __file__, args.workloads, args.truth, "--child", name]
    env = {**os.environ, "PEAKLINE_ALLOCATOR_TORCH": args.torch}
    done = subprocess.run([*command, "--gpu", args.gpu], capture_output=True, text=True, env=env)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        error = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"error": error[:150]}
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return result


def error_of(estimated: int, real: int) -> str:
    return f"{100 * (estimated / real - 1):+.2f}%"


def row(name: str, truth: dict[str, Any], found: dict[str, Any]) -> str:
    if "error" in found:
        return f"| {name} | {found['error']} | | | | | | |"
    cells = []
    for kind in ("allocated", "reserved"):
        real = max(truth[stage][kind] for stage in STAGES)
        estimated = max(found[stage][kind] for stage in STAGES)
        cells += [f"{real / 2**20:,.1f}", f"{estimated / 2**20:,.1f}", error_of(estimated, real)]
    steps = [error_of(found[s]["allocated"], truth[s]["allocated"]) for s in STAGES]
    return f"| {name} | " + " | ".join(cells) + f" | {', '.join(steps)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads")
    parser.add_argument("truth")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--torch", default="2.11")
    parser.add_argument("--json", help="write what was estimated, for tests/data")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        found = estimate(args.workloads, args.child, args.gpu)
        print("RESULT " + json.dumps(found), flush=True)
        return
    with open(args.truth) as lines:
        truth = {entry["name"]: entry for entry in map(json.loads, lines)}
    print(
        "| Workload | Allocated, real (MiB) | Estimated | Error | Reserved, real (MiB) |"
        " Estimated | Error | Allocated after build, steps 1 to 3 |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    kept = {}
    for name in chosen(parser, args.names, truth):
        found = kept[name] = in_child(args, name)
        print(row(name, truth[name], found), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
