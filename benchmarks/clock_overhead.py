"""What the clock costs a virtual step: `python benchmarks/clock_overhead.py`.

The same step with the clock and without, in turns, in CPU time of the process, the best of many:
what disturbs a machine only adds. A transformer and a convolutional network, a line each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import peakline

LAYERS = 6


def transformer() -> Callable[[], None]:
    with torch.device("cuda"):
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        net = nn.TransformerEncoder(layer, LAYERS)
        x = torch.rand(16, 256, 512)
    return _training(net, x)


def convolutions() -> Callable[[], None]:
    parts: list[nn.Module] = []
    for _ in range(4 * LAYERS):
        parts += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    with torch.device("cuda"):
        x = torch.rand(16, 64, 32, 32)
    return _training(nn.Sequential(*parts).cuda(), x)


def _training(net: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(net.parameters())

    def step() -> None:
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def cpu_ms(make: Callable[[], Callable[[], None]], clock: bool, steps: int) -> list[float]:
    found = []
    with peakline.virtual_gpu("h200", clock=clock):
        step = make()
        for i in range(steps + 2):
            begin = time.process_time()
            step()
            if i >= 2:
                found.append(1e3 * (time.process_time() - begin))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=10, help="of each round")
    args = parser.parse_args()
    print(f"{'step':14} {'without':>10} {'with':>10} {'more':>7}")
    for name, make in {"transformer": transformer, "convolutions": convolutions}.items():
        best = {True: float("inf"), False: float("inf")}
        for _ in range(args.rounds):
            for clock in best:
                best[clock] = min(best[clock], *cpu_ms(make, clock, args.steps))
        more = 100 * (best[True] / best[False] - 1)
        print(f"{name:14} {best[False]:8.2f}ms {best[True]:8.2f}ms {more:+6.1f}%", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
