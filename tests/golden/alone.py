"""The program on a machine with neither torch nor Python: every command over recordings.

    python alone.py --cli PEAKLINE --maker MAKE_RECORDING

An empty environment, a PATH with nothing on it and a copy of the program in a folder of its own are
such a machine, as far as the program can see. What it links is listed by ldd.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from run import TRACE

# What every Linux has, and the C++ runtime.
SYSTEM = ("linux-vdso", "ld-linux", "libstdc++", "libgcc_s", "libm.", "libc.", "libdl.", "librt.",
          "libpthread.", "libasan", "libubsan", "libtsan")  # fmt: skip


def expect(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"alone: {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cli", required=True)
    parser.add_argument("--maker", required=True)
    args = parser.parse_args()
    linked = subprocess.run(["ldd", args.cli], capture_output=True, text=True, check=True).stdout
    foreign = [
        line.split()[0]
        for line in linked.splitlines()
        if not Path(line.split()[0]).name.startswith(SYSTEM)
    ]
    expect(not foreign, f"the program needs {foreign}, which not every machine has")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = shutil.copy(args.cli, folder / "peakline")
        for made in ("training", "grown"):
            subprocess.run([args.maker, made, folder / f"{made}.peak"], check=True)
        (folder / "run.0.peak").write_bytes((folder / "training.peak").read_bytes())
        (folder / "run.1.peak").write_bytes((folder / "grown.peak").read_bytes())
        (folder / "trace.csv").write_text(TRACE)

        def peakline(*words: str, status: int = 0) -> str:
            done = subprocess.run(
                [program, *words],
                cwd=folder, env={"PATH": ""}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            said = done.stdout + done.stderr
            expect(done.returncode == status, f"{words} exited with {done.returncode}: {said}")
            return said

        expect("GiB" in peakline("show", "training.peak"), "show names no sizes")
        peakline("report", "training.peak", "-o", "report.html")
        expect("<script" in (folder / "report.html").read_text(), "the report has no page")
        expect("MiB" in peakline("diff", "training.peak", "grown.peak"), "diff names no sizes")
        simulated = peakline("simulate", "trace.csv", "--json", "-")
        expect("peak_reserved" in json.loads(simulated), f"simulate: {simulated}")
        peakline("import", "trace.csv", "-o", "imported.peak")
        expect("MiB" in peakline("show", "imported.peak"), "what was imported cannot be shown")
        for form, written in (("csv", "tables"), ("sqlite", "run.db"), ("perfetto", "run.pftrace")):
            peakline("export", "training.peak", "--to", form, "-o", written)
            expect((folder / written).exists(), f"export --to {form} wrote nothing")
        expect("rank" in peakline("merge", "run.0.peak", "run.1.peak"), "merge names no rank")
        peakline("check", "training.peak", "--max", "1TiB")
        peakline("check", "training.peak", "--max", "1MiB", status=3)
        said = peakline("estimate", "train.py", status=1)
        expect("PEAKLINE_PYTHON" in said and said.count("\n") == 1, f"not one sentence: {said}")
    print("alone: 8 commands ran without torch and Python")


if __name__ == "__main__":
    main()
