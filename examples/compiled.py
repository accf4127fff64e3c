"""Trains a compiled model, or the same model eagerly: what does compiling do to its memory?

peakline estimate examples/compiled.py -- --mode default
peakline estimate examples/compiled.py -- --mode eager
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--mode", choices=["eager", "default"], default="default")
    args = parser.parse_args()

    model = nn.Sequential(*(block(args.width) for _ in range(args.layers))).cuda()
    run: Callable[[torch.Tensor], torch.Tensor] = model
    if args.mode == "default":
        run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(args.steps):
        run(torch.randn(args.batch, args.width, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
