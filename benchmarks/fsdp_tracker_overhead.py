"""FSDPMemTracker beside upstream's: the same model, the same steps, one process, in turns.

python benchmarks/fsdp_tracker_overhead.py [--layers 4] [--width 256] [--rounds 5]

One rank of a world of one with gloo, on the CPU, so that both trackers run for real.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as Upstream
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from peakline.fsdp2_mem_tracker import FSDPMemTracker


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, how: Any) -> float:
    tracker = how(model, optimizer) if how else contextlib.nullcontext()
    if how:
        tracker.track_inputs((x,))
    began = time.process_time()
    with tracker:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "RANK": "0"}
    os.environ["WORLD_SIZE"] = "1"
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (1,))
    make = nn.TransformerEncoderLayer
    model = nn.Sequential(
        *(make(args.width, 4, batch_first=True, dropout=0.0) for _ in range(args.layers))
    )
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    x = torch.randn(4, 64, args.width)
    ways = {"bare": None, "peakline": FSDPMemTracker, "upstream": Upstream}
    times: dict[str, list[float]] = {name: [] for name in ways}
    step(model, optimizer, x, None)
    for _ in range(args.rounds):
        for name, how in ways.items():
            times[name].append(step(model, optimizer, x, how))
    bare = statistics.median(times["bare"])
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        print(f"{name:<10} {1e3 * middle:8.1f} ms of CPU a step, {middle / bare:5.2f} of bare")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
