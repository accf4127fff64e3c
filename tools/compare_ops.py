"""What a virtual GPU says of single operators, beside what was measured on a real one.

    python tools/compare_ops.py [FILE.jsonl] [--gpu h200] [--beyond 1] [--predicted FILE.jsonl]

A row has a name of tools/accuracy/{op,fresh,unseen}_cases.py, or a family and arguments of
recorded_cases.py, the round that was measured, and the peak rise in requested bytes of forward and
backward. "values": what the sizes of its results depend on, as given to peakline.virtual_gpu.
--predicted compares what was written down earlier (measure_ops.py --virtual), not today's rules.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from accuracy import fresh_cases, op_cases, unseen_cases
from accuracy.op_cases import Case
from accuracy.recorded_cases import recorded_case
from measure_ops import Probe, measure

MEASURED = Path(__file__).parents[1] / "tests" / "data" / "kernels" / "ops_h200.jsonl"
NOISE = 1024  # bytes: below this a difference is scalars, and a share of it says nothing


@dataclass
class Compared:
    name: str
    family: str
    group: str
    real: dict[str, int]
    predicted: dict[str, int]
    problem: str = ""

    @property
    def error(self) -> float:
        """The worse of forward and backward, as a share of the real rise."""
        return max(share(self.predicted.get(way, 0), real) for way, real in self.real.items())


def share(predicted: int, real: int) -> float:
    difference = abs(predicted - real)
    return 0.0 if difference <= NOISE and real <= NOISE else difference / max(real, 1)


def compare(rows: Iterable[dict[str, Any]], gpu: str) -> list[Compared]:
    import peakline

    cases = {case.name: case for case in (*op_cases.all_cases(), *predicted_cases())}
    probe = Probe(peaks_only=True)
    gc.freeze()  # every measurement collects garbage: what is there already need not be searched
    results = []
    for values, group in by_values(rows):
        with peakline.virtual_gpu(gpu, values=values):
            for row in group:
                named = cases.get(row.get("name", ""))
                case = named or recorded_case(row["family"], row["args"])
                results.append(compare_one(case, row, probe))
    return results


def predicted_cases() -> list[Case]:
    return [*fresh_cases.all_cases(), *unseen_cases.all_cases()]


def by_values(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, float], list[Any]]]:
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(json.dumps(row.get("values", {})), []).append(row)
    for values, group in groups.items():
        yield json.loads(values), group


def compare_one(case: Case, row: dict[str, Any], probe: Probe) -> Compared:
    rounds = ("first", "second") if row["round"] == "second" else ("first",)
    found = measure(case, probe, rounds)
    ways = [way for way in ("forward", "backward") if way in row]
    return Compared(
        case.name, case.family, row["set"], {way: row[way] for way in ways},
        {way: found.get(f"{row['round']}_{way}", {}).get("requested", 0) for way in ways},
        found.get("error", ""),
    )  # fmt: skip


def compare_written(rows: Iterable[dict[str, Any]], path: Path) -> list[Compared]:
    written = {row["name"]: row for row in read(path)}
    families = {case.name: case.family for case in predicted_cases()}
    results = []
    for row in rows:
        name = row["name"]
        real: dict[str, int] = {way: row[way] for way in ("forward", "backward") if way in row}
        results.append(Compared(name, families[name], row["set"], real, written[name]))
    return results


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def within(results: Iterable[Compared], limit: float) -> int:
    return sum(result.error <= limit for result in results)


def print_table(results: list[Compared], key: str) -> None:
    print(f"| {key.capitalize()} | Calls | Within 1% | Within 10% |\n|---|---:|---:|---:|")
    for value in sorted({getattr(r, key) for r in results}):
        chosen = [r for r in results if getattr(r, key) == value]
        print(f"| {value} | {len(chosen)} | {within(chosen, 0.01)} | {within(chosen, 0.1)} |")
    print(f"| all | {len(results)} | {within(results, 0.01)} | {within(results, 0.1)} |\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", default=MEASURED)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--beyond", type=float, default=10, help="list calls that err by more (%%)")
    parser.add_argument("--predicted", type=Path, help="predictions of the same calls")
    args = parser.parse_args()
    rows = read(args.file)
    results = compare_written(rows, args.predicted) if args.predicted else compare(rows, args.gpu)
    print_table(results, "group")
    print_table(results, "family")
    for r in sorted(results, key=lambda r: -r.error):
        if r.error > args.beyond / 100:
            print(f"{100 * r.error:8.2f}% {r.name} {r.real} {r.predicted} {r.problem}")


if __name__ == "__main__":
    main()
