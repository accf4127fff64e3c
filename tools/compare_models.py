"""Predicted peaks of training steps beside measured ones, as a table of docs/accuracy.md.

    python tools/compare_models.py PREDICTED.jsonl MEASURED.jsonl

Both files have rows of tools/measure_ops.py (models.jsonl). What counts is step 3.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HEAD = """\
| Model | Allocated, real (MiB) | Predicted | Error | Reserved, real (MiB) | Predicted | Error |
|---|---:|---:|---:|---:|---:|---:|"""


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Step 3 of every model; a model that failed before it has none."""
    rows = map(json.loads, path.read_text().splitlines())
    return {row["name"]: row.get("step3", {}) for row in rows}


def cells(predicted: int | None, real: int | None) -> list[str]:
    if predicted is None or real is None:
        return [mebibytes(real, "not measured"), mebibytes(predicted, "failed"), ""]
    return [mebibytes(real), mebibytes(predicted), f"{100 * (predicted / real - 1):+.2f}%"]


def mebibytes(size: int | None, otherwise: str = "") -> str:
    return otherwise if size is None else f"{size / 2**20:,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("predicted", type=Path)
    parser.add_argument("measured", type=Path)
    args = parser.parse_args()
    measured = read(args.measured)
    print(HEAD)
    for name, predicted in read(args.predicted).items():
        row = [name]
        for what in ("allocated", "reserved"):
            row += cells(predicted.get(what), measured.get(name, {}).get(what))
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
