"""How long `peakline merge` takes, and how much memory, over the number of ranks.

python benchmarks/merge_ranks.py PEAKLINE RECORDING.peak [--ranks 1,64,1024]

The recording is linked as every rank's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peakline")
    parser.add_argument("recording")
    parser.add_argument("--ranks", default="1,64,1024")
    args = parser.parse_args()
    print("| Ranks | Seconds | CPU seconds | Memory (MiB) |\n|---:|---:|---:|---:|")
    for count in map(int, args.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, f"run.{rank}.peak") for rank in range(count)]
            for file in files:
                os.symlink(Path(args.recording).resolve(), file)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            command = [args.peakline, "merge", *map(str, files), "--json", "-"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds = time.perf_counter() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert json.loads(done.stdout)["recordings"] == count
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"| {count:,} | {seconds:.2f} | {cpu:.2f} | {after.ru_maxrss / 1024:.1f} |")


if __name__ == "__main__":
    main()
