"""A long training run on the CPU, tracked: our memory, our cost and the file, over time.

    python benchmarks/soak.py [--steps 20000] [--max-size 4MiB]

Ends with 1 when host memory or the time of a step grows, or the file outgrows its bound.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from peakline import _C
from peakline.track import Tracker, largest_size

PARTS = 5
MORE_MEMORY = 8 << 20  # bytes between the first part's end and the last's
SLOWER = 1.5


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--max-size", default="")
    args = parser.parse_args()
    most = largest_size(args.max_size or None)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "soak.peak")
        tracker = Tracker([], [], path=path, max_size=most)
        run = tracker.start()
        for part in range(PARTS):
            start = time.process_time()
            for step in range(args.steps // PARTS):
                size = 8 + step % 7  # so that steps do not repeat, and every op is watched
                optimizer.zero_grad()
                model(torch.randn(size, 16)).square().mean().backward()
                optimizer.step()
            run.live()
            micros = (time.process_time() - start) / (args.steps // PARTS) * 1e6
            rows.append((resident(), micros, path.stat().st_size))
            shown = _C.format_size(rows[-1][2])
            print(
                f"part {part + 1}: resident {_C.format_size(rows[-1][0])}, "
                f"{micros:.0f} us of processor a step, file {shown}",
                flush=True,
            )
        tracker.stop()
        steps, file_size = len(run.steps), path.stat().st_size
    print(f"{steps} steps, file {_C.format_size(file_size)}, peak {run.peak().bytes} bytes")
    grown = rows[-1][0] - rows[0][0]
    failed = grown > MORE_MEMORY or rows[-1][1] > SLOWER * rows[1][1]
    failed |= steps != args.steps // PARTS * PARTS or bool(most and file_size > most)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
