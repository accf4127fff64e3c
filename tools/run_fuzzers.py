"""Runs every fuzzer for a given time of the processor, and prints a table for docs/reliability.md.

    make fuzz FUZZ_MINUTES=30

Inputs that reach new code are kept in build/fuzz/found, so the next run goes
on where the last one ended. A finding ends it with status 1, and names the input.
"""

import argparse
import math
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST_SLICE = 120  # seconds of the wall: a fuzzer cannot be told a limit of processor time
RSS_LIMIT_MB = 3000


@dataclass
class Totals:
    cpu_seconds: float = 0.0
    runs: int = 0
    covered: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="processor time for each fuzzer")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="fuzzers to run")
    options = parser.parse_args()
    fuzzers = sorted((ROOT / "build/fuzz/fuzz").glob("*_fuzz"))
    chosen = [f for f in fuzzers if not options.only or _name(f) in options.only]
    if not chosen:
        print("no fuzzer to run: build them with `cmake --build --preset fuzz`", file=sys.stderr)
        return 2
    print("| Target | Processor time | Runs | Edges covered | Inputs kept |")
    print("|---|---:|---:|---:|---:|")
    return 0 if all(_fuzz(f, options.minutes * 60) for f in chosen) else 1


def _name(fuzzer: Path) -> str:
    return fuzzer.name.removesuffix("_fuzz")


def _fuzz(fuzzer: Path, cpu_seconds: float) -> bool:
    kept = ROOT / "build/fuzz/found" / _name(fuzzer)
    kept.mkdir(parents=True, exist_ok=True)
    totals = Totals()
    while totals.cpu_seconds < cpu_seconds:
        seconds = math.ceil(min(LONGEST_SLICE, cpu_seconds - totals.cpu_seconds))
        clean, output = _run_slice(fuzzer, seconds, [kept, *_stored_inputs(_name(fuzzer))], totals)
        if not clean:
            print(output[-4000:], file=sys.stderr)
            return False
    inputs = sum(1 for _ in kept.iterdir())
    print(
        f"| `{_name(fuzzer)}` | {totals.cpu_seconds / 60:.1f} min | {totals.runs:,} "
        f"| {totals.covered:,} | {inputs:,} |",
        flush=True,
    )
    return True


def _stored_inputs(name: str) -> Iterator[Path]:
    # Recordings are what both read.
    for folder in {name, "trace_reader" if name == "answers" else name}:
        if (path := ROOT / "fuzz/corpus" / folder).is_dir():
            yield path


def _run_slice(fuzzer: Path, seconds: int, corpora: list[Path], totals: Totals) -> tuple[bool, str]:
    before = _children_seconds()
    command = [
        str(fuzzer),
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={RSS_LIMIT_MB}",
        f"-artifact_prefix={ROOT / 'build/fuzz'}/{_name(fuzzer)}-",
        "-print_final_stats=1",
        *map(str, corpora),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    totals.cpu_seconds += _children_seconds() - before
    if runs := re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr):
        totals.runs += int(runs[1])
    if edges := re.findall(r"\bcov: (\d+)", done.stderr):
        totals.covered = max(totals.covered, int(edges[-1]))
    return done.returncode == 0, done.stderr


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
