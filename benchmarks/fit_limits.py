"""`peakline fit` beside the largest batches that really trained on an H200.

python benchmarks/fit_limits.py [MODEL…]      needs transformers for most of them

Each row of tests/data/max_batch_h200.jsonl has a model of examples/train_hf.py, a budget and the
largest batch of which three training steps fit it, found on the GPU by trying.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "train_hf.py"
TRUTH = ROOT / "tests" / "data" / "max_batch_h200.jsonl"


def found(row: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "peakline._fit_script", str(EXAMPLE), "--forget"]
    command += ["--memory", row["memory"], "--vary", "batch-size=1..512", "--json", "-"]
    done = subprocess.run([*command, "--", "--model", row["model"]], capture_output=True, text=True)
    if not done.stdout:
        sys.exit(done.stderr[-2000:])
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    rows = [json.loads(line) for line in TRUTH.read_text().splitlines()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    chosen = parser.parse_args().models
    print("| Model | Memory | Largest batch, real | `peakline fit` | Tries |")
    print("|---|---:|---:|---:|---:|")
    for row in rows:
        if not chosen or row["model"] in chosen:
            answer = found(row)
            cells = [row["model"], row["memory"], row["largest"], answer["value"]]
            print("| " + " | ".join(map(str, [*cells, len(answer["tries"])])) + " |", flush=True)


if __name__ == "__main__":
    main()
