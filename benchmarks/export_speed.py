"""A long recording, exported to every format: time beside `peakline show`, memory, and size.

    python benchmarks/export_speed.py RECORDING [--cli PEAKLINE] [--to csv sqlite …] [--keep FOLDER]

`build/release/tests/make_recording synthetic:100000000 FILE` makes a long recording. Each format
runs in a process of its own; time is the processor's, memory the highest resident set. The ratio
to `show`, which reads the recording once, is what compares between machines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

FORMATS = ("csv", "json", "sqlite", "perfetto", "snapshot")


@dataclass
class Measured:
    seconds: float  # of the processor
    mebibytes: float  # resident
    written: float  # MiB


def size_of(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def measure(command: list[str], output: Path | None) -> Measured:
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    seconds = used.ru_utime + used.ru_stime
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed: {said.decode()[-500:]}")
    written = size_of(output) / 2**20 if output else 0.0
    return Measured(seconds, used.ru_maxrss / 1024, written)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--cli", default=shutil.which("peakline") or "peakline")
    parser.add_argument("--to", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--keep", type=Path, help="leave the files there")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="peakline-"))
    folder.mkdir(parents=True, exist_ok=True)
    show = measure([args.cli, "show", str(args.recording)], None)
    print(f"{'':10} {'seconds':>9} {'x show':>7} {'resident MiB':>13} {'written MiB':>12}")
    print(f"{'show':10} {show.seconds:9.1f} {1.0:7.1f} {show.mebibytes:13.0f} {'':>12}")
    for to in args.to:
        output = folder / f"export-{to}"
        command = [args.cli, "export", str(args.recording), "--to", to, "-o", str(output)]
        row = measure(command, output)
        ratio = row.seconds / show.seconds
        print(
            f"{to:10} {row.seconds:9.1f} {ratio:7.1f} {row.mebibytes:13.0f} {row.written:12.1f}",
            flush=True,
        )
        if args.keep is None:
            remove(output)
    if args.keep is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
