"""How long `peakline estimate --ranks all-distinct` takes for a job of 16,384 ranks.

    python benchmarks/many_ranks.py [--steps 2]

The job is examples/llama_4d.py, shaped like Llama 3.1 405B. Two steps: the first has no optimizer
states yet, the second has. Prints the time, on how many cores, and each kind's peaks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama_4d.py"
DP, CP, TP = 64, 2, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default="2")
    args = parser.parse_args()
    command = [sys.executable, "-m", "peakline._estimate_script", str(EXAMPLE)]
    command += ["--world-size", "16384", "--ranks", "all-distinct", "--steps", args.steps]
    began = time.perf_counter()
    done = subprocess.run([*command, "--json", "-"], stdout=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 3):
        sys.exit(f"the estimate failed with status {done.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    show(json.loads(done.stdout), seconds, used.ru_utime + used.ru_stime, args.steps)


def show(answer: dict[str, Any], seconds: float, cpu: float, steps: str) -> None:
    rows = answer["ranks"]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(
        f"{len(rows)} kinds of {answer['world_size']:,} ranks, {steps} steps each: {seconds:.0f} s "
        f"({cpu:.0f} s of CPU) on {cores} cores, load {load:.1f}\n"
    )
    print("| Rank | Stage | Place along FSDP | Allocated (GiB) | Reserved (GiB) |")
    print("|---:|---:|---:|---:|---:|")
    for row in rows:
        stage, rest = divmod(row["rank"], DP * CP * TP)
        sizes = [row[key] / 2**30 for key in ("peak_allocated", "peak_reserved")]
        place = rest // (CP * TP)
        print(f"| {row['rank']:,} | {stage} | {place} | {sizes[0]:.2f} | {sizes[1]:.2f} |")


if __name__ == "__main__":
    main()
