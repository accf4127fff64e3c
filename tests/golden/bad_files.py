"""Damaged recordings through the command line: one sentence and exit 2, never a crash.

    python bad_files.py --cli PEAKLINE --maker MAKE_RECORDING [--every N]

Every truncation and every flipped bit of a small recording; --every N takes each Nth only.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path


class Checker:
    def __init__(self, cli: str, folder: str) -> None:
        self.cli = cli
        self.path = Path(folder, "bad.peak")
        self.failures: list[str] = []
        self.runs = 0
        self.opened = 0

    def show(self, what: str, content: bytes, may_open: bool) -> None:
        self.path.write_bytes(content)
        done = subprocess.run(
            [self.cli, "show", str(self.path)], capture_output=True, text=True, check=False
        )
        self.runs += 1
        lines = done.stderr.splitlines()
        said = len(lines) >= 1 and all(line.startswith("peakline: ") for line in lines)
        if done.returncode == 2:
            fine = said and len(lines) == 1 and done.stdout == ""
        else:
            # A cut recording opens up to its last whole chunk, and says so.
            fine = may_open and done.returncode == 0 and said
            self.opened += done.returncode == 0
        if not fine:
            self.failures.append(f"{what}: exit {done.returncode}, stderr {done.stderr[-500:]!r}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cli", required=True)
    parser.add_argument("--maker", required=True)
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder, "good.peak")
        subprocess.run([args.maker, "impossible", str(good)], check=True)
        content = good.read_bytes()
        check = Checker(args.cli, folder)

        check.show("empty file", b"", may_open=False)
        check.show("one zero", b"\0", may_open=False)
        check.show("a recording followed by more", content + b"x", may_open=False)
        noise = random.Random(1)
        for length in (1, 7, 64, 1000, 100_000):
            check.show(f"{length} random bytes", noise.randbytes(length), may_open=False)
            broken = content[:16] + noise.randbytes(length)
            check.show(f"{length} random bytes after a true start", broken, may_open=True)
        for length in range(0, len(content), args.every):
            check.show(f"cut to {length} bytes", content[:length], may_open=True)
        for bit in range(0, len(content) * 8, args.every):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << (bit % 8)
            check.show(f"bit {bit} flipped", bytes(flipped), may_open=True)

    for failure in check.failures[:20]:
        print(failure, file=sys.stderr)
    print(f"{check.opened} of {check.runs} damaged files opened with a warning")
    print(f"{check.runs - len(check.failures)} passed, {len(check.failures)} failed")
    return 1 if check.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
