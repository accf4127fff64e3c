"""What asking a running run costs: `run.live()` after every step, beside `run.peak()`.

python benchmarks/live_cost.py [--steps 2000]

`live()` reads what is new since the last question, `peak()` all of the recording; both write out
first what has not reached the file yet.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import peakline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    torch.set_num_threads(1)  # waiting threads would be measured, too
    layers = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(12)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    steps: list[float] = []
    asked: list[float] = []
    with peakline.track(model, optimizer) as run:
        for _ in range(args.steps):
            begin = time.perf_counter()
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            stepped = time.perf_counter()
            run.live()
            asked.append(time.perf_counter() - stepped)
            steps.append(stepped - begin)
        begin = time.perf_counter()
        run.peak()
        whole = time.perf_counter() - begin
    tenth = len(asked) // 10
    print(f"step                     {1e3 * statistics.median(steps):8.3f} ms")
    print(f"live(), first tenth      {1e3 * statistics.median(asked[:tenth]):8.3f} ms")
    print(f"live(), last tenth       {1e3 * statistics.median(asked[-tenth:]):8.3f} ms")
    print(f"peak(), at the end       {1e3 * whole:8.3f} ms")


if __name__ == "__main__":
    main()
