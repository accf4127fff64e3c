"""Records what torch's CUDA caching allocator really does, for the simulator's conformance tests.

    python tools/record_allocator_truth.py OUT_DIR [--quick]

Needs one NVIDIA GPU. Every scenario runs in a process of its own, because the allocator reads its
settings once. A scenario that fails or hangs is reported and does not stop the others.

Two kinds of files come out, both gzipped:
  random.NAME.jsonl.gz  A run of random operations. The operations themselves are not stored: they
                        follow from the seed (random_program.py, mirrored in C++ by the tests).
                        Stored are the segments the allocator took and returned, the order in which
                        blocks that waited for other streams became free, and memory_stats() with a
                        hash of all addresses at every checkpoint.
  script.NAME.csv.gz    The allocator's own trace of a short written program, with rows for what
                        the trace does not show (empty_cache, limits, graph captures, checkpoints).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from allocator_truth.random_runs import RANDOM_RUNS, run_random
from allocator_truth.scripts import SCRIPTS, run_script


def run_job(out_dir: Path, kind: str, name: str, flags: list[str]) -> str:
    conf = RANDOM_RUNS[name][0] if kind == "random" else SCRIPTS[name][0]
    env = dict(os.environ)
    env.pop("PYTORCH_ALLOC_CONF", None)
    env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if conf:
        env["PYTORCH_CUDA_ALLOC_CONF"] = conf
    command = [sys.executable, __file__, str(out_dir), "--only", f"{kind}:{name}", *flags]
    limit = 150 if name == "default" else 60
    try:
        done = subprocess.run(
            command, env=env, timeout=limit, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    return "ok" if done.returncode == 0 else f"failed {done.returncode}: {done.stderr[-1500:]}"


def run_all(out_dir: Path, quick: bool) -> int:
    jobs = [("random", name) for name in RANDOM_RUNS] + [("script", name) for name in SCRIPTS]
    flags = ["--quick"] if quick else []
    failed = 0
    log: list[str] = []
    for kind, name in jobs:
        began = time.monotonic()
        outcome = run_job(out_dir, kind, name, flags)
        if outcome == "timed out" and kind == "random" and "--no-gate" not in flags:
            # A driver that waits inside cudaMalloc for the held streams: go on without holding any.
            flags.append("--no-gate")
            outcome = "timed out with the gate; without it " + run_job(out_dir, kind, name, flags)
        failed += not outcome.endswith("ok")
        line = f"{kind}:{name} {outcome} ({time.monotonic() - began:.1f} s)"
        print(line, flush=True)
        log.append(line)
    (out_dir / "log.txt").write_text("\n".join(log) + "\n")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Record the CUDA caching allocator's behaviour.")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--only", help="one job, as KIND:NAME, in this process")
    parser.add_argument("--quick", action="store_true", help="a tenth of the random operations")
    parser.add_argument("--no-gate", action="store_true", help="never hold streams back")
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    if not args.only:
        return run_all(args.out_dir, args.quick)
    kind, name = args.only.split(":")
    if kind == "random":
        run_random(args.out_dir, name, 0.1 if args.quick else 1.0, not args.no_gate)
    else:
        run_script(args.out_dir, name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
