"""Large recordings through the program: what each command takes, over three decades of events.

    python benchmarks/load.py PEAKLINE MAKE_RECORDING [--events 1000000,10000000,100000000]
                              [--live 1000,1000000]

Every command runs in a process of its own. Ends with 1 when one takes a GiB or more of memory, or
when ten times as much to read takes more than twice ten times as long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MOST_MEMORY = 1 << 30
MOST_PER_DECADE = 20.0
LEAST_SECONDS = 0.1  # shorter runs are mostly the start of a process


@dataclass(frozen=True)
class Used:
    seconds: float  # of the processor
    bytes: int  # resident, at most


def measure(*command: str | Path) -> Used:
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(child.pid, 0)
        if status != 0:
            said.seek(0)
            raise SystemExit(f"{' '.join(map(str, command))} failed: {said.read().decode()[-500:]}")
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def commands(peakline: str, recording: Path, folder: Path) -> dict[str, list[str | Path]]:
    page = folder / "page.html"
    return {
        "show": [peakline, "show", recording],
        "diff": [peakline, "diff", recording, recording],
        "simulate": [peakline, "simulate", recording, "--conf", "expandable_segments:True"],
        "report": [peakline, "report", recording, "-o", page],
    }


def counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peakline")
    parser.add_argument("make_recording")
    parser.add_argument("--events", type=counts, default=[10**6, 10**7, 10**8])
    parser.add_argument("--live", type=counts, default=[10**4, 10**5, 10**6])
    args = parser.parse_args()
    bad = []
    print("| Recording | Command | CPU seconds | Memory (MiB) |\n|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recording = folder / "load.peak"
        for kind, sizes in {"synthetic-stacks": args.events, "live": args.live}.items():
            before: dict[str, tuple[int, Used]] = {}
            for size in sizes:
                measure(args.make_recording, f"{kind}:{size}", recording)
                what = f"{size:,} {'events' if kind != 'live' else 'live blocks'}"
                for command, words in commands(args.peakline, recording, folder).items():
                    used = measure(*words)
                    print(f"| {what} | {command} | {used.seconds:.2f} | {used.bytes / 2**20:.0f} |")
                    sys.stdout.flush()
                    if used.bytes >= MOST_MEMORY:
                        bad.append(f"{command} of {what} takes a GiB or more")
                    if command in before:
                        smaller, less = before[command]
                        allowed = max(less.seconds, LEAST_SECONDS) * size / smaller
                        if used.seconds > allowed * MOST_PER_DECADE / 10:
                            bad.append(f"{command} grows faster than what it reads, at {what}")
                    before[command] = (size, used)
    for sentence in bad:
        print(sentence, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
