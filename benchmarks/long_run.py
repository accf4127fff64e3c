"""A long training run on a GPU, tracked and untracked: the same losses, the same cost at the end.

    python benchmarks/long_run.py run WORKLOADS.py NAME -o A.json [--steps 500] [--tracked]
    python benchmarks/long_run.py compare A.json B.json TRACKED.json

torch's deterministic algorithms are on. Two untracked runs show what the program itself repeats;
the tracked one is compared with them bit by bit. Ends with 1 when a loss differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

PARTS = 5


def run(args: argparse.Namespace) -> int:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    from workload_file import load

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    state = load(args.workloads).W[args.name](args.device)
    losses: list[str] = []
    of_step = state.loss

    def kept(model: Any, inputs: Any) -> Any:
        loss = of_step(model, inputs)
        kept.last = loss  # type: ignore[attr-defined]
        return loss

    state.loss = kept
    seconds = []
    with tracked(state) if args.tracked else contextlib.nullcontext():
        for _ in range(args.steps):
            start = time.perf_counter()
            state.step()
            losses.append(float(kept.last.item()).hex())  # type: ignore[attr-defined]
            seconds.append(time.perf_counter() - start)
    found = {
        "name": args.name,
        "tracked": args.tracked,
        "torch": torch.__version__,
        "losses": losses,
        "seconds": seconds,
    }
    Path(args.output).write_text(json.dumps(found) + "\n")
    return 0


def tracked(state: Any) -> contextlib.AbstractContextManager[Any]:
    import peakline

    return peakline.track(state.model, state.opt)


def compare(first: str, again: str, with_tracking: str) -> int:
    runs = [json.loads(Path(path).read_text()) for path in (first, again, with_tracking)]
    bare, repeated, watched = (run["losses"] for run in runs)
    itself = different(bare, repeated)
    ours = different(bare, watched)
    print(f"{runs[0]['name']}, {len(bare)} steps, torch {runs[0]['torch']}")
    print(f"losses of two untracked runs that differ: {itself}")
    print(f"losses of the tracked run that differ: {ours}")
    print(f"the first and the last loss: {number(bare[0])}, {number(bare[-1])}")
    for run in runs:
        told = ", ".join(f"{1e3 * part:.1f}" for part in middles(run["seconds"]))
        print(f"ms of a step, {'tracked' if run['tracked'] else 'untracked'}: {told}")
    return 1 if itself or ours else 0


def different(some: list[str], others: list[str]) -> int:
    return abs(len(some) - len(others)) + sum(a != b for a, b in zip(some, others, strict=False))


def number(text: str) -> str:
    return f"{float.fromhex(text):.6f}"


def middles(seconds: list[float]) -> list[float]:
    """The middle step of each fifth of the run."""
    length = max(1, len(seconds) // PARTS)
    parts = [seconds[i : i + length] for i in range(0, length * PARTS, length)]
    return [statistics.median(part) for part in parts if part]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("run")
    one.add_argument("workloads")
    one.add_argument("name")
    one.add_argument("-o", dest="output", required=True)
    one.add_argument("--steps", type=int, default=500)
    one.add_argument("--device", default="cuda")
    one.add_argument("--tracked", action="store_true")
    three = actions.add_parser("compare")
    three.add_argument("runs", nargs=3)
    args = parser.parse_args()
    return run(args) if args.action == "run" else compare(*args.runs)


if __name__ == "__main__":
    sys.exit(main())
