"""A large snapshot, reported: peakline beside torch's own memory_viz, in one run.

    python benchmarks/report_speed.py [--mebibytes 1024] [--cli PEAKLINE] [--keep FOLDER]

Each program runs in a process of its own; time is wall-clock, memory the highest resident set.
memory_viz is torch.cuda._memory_viz as installed: its page embeds the whole snapshot.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

VIZ = """
import pickle, sys
from torch.cuda import _memory_viz
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
with open(sys.argv[2], "w") as out:
    out.write(_memory_viz.{kind}(snapshot))
"""


@dataclass
class Measured:
    seconds: float
    mebibytes: float  # resident
    output: float  # MiB written


def measure(command: list[str], output: Path) -> Measured:
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    if status != 0:
        raise SystemExit(f"{' '.join(command[:4])} … failed: {said.decode()[-500:]}")
    return Measured(seconds, used.ru_maxrss / 1024, output.stat().st_size / 2**20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--cli", default=shutil.which("peakline") or "peakline")
    parser.add_argument("--keep", type=Path, help="leave the files there")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="peakline-"))
    folder.mkdir(parents=True, exist_ok=True)
    snapshot = folder / "snapshot.pickle"
    subprocess.run(
        [sys.executable, str(HERE / "make_snapshot.py"), str(snapshot), "--mebibytes",
         str(args.mebibytes)], check=True,
    )  # fmt: skip
    peak, html = folder / "run.peak", folder / "run.html"
    rows = {
        "peakline import": measure([args.cli, "import", str(snapshot), "-o", str(peak)], peak),
        "peakline report": measure([args.cli, "report", str(peak), "-o", str(html)], html),
    }
    for kind in ("trace_plot", "segment_plot"):
        page = folder / f"{kind}.html"
        command = [sys.executable, "-c", VIZ.format(kind=kind), str(snapshot), str(page)]
        rows[f"memory_viz {kind}"] = measure(command, page)
    print(f"{'':26} {'seconds':>9} {'resident MiB':>13} {'written MiB':>12}")
    for name, row in rows.items():
        print(f"{name:26} {row.seconds:9.1f} {row.mebibytes:13.0f} {row.output:12.1f}")
    ours = rows["peakline import"].seconds + rows["peakline report"].seconds
    memory = max(rows["peakline import"].mebibytes, rows["peakline report"].mebibytes)
    theirs = rows["memory_viz trace_plot"]
    print(
        f"import + report against trace_plot: {theirs.seconds / ours:.1f}x faster, "
        f"{theirs.mebibytes / memory:.1f}x less memory, "
        f"page {theirs.output / rows['peakline report'].output:.0f}x smaller"
    )
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"(this script itself: {own:.0f} MiB)")
    if args.keep is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
