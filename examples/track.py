"""Tracks a plain PyTorch training loop, on a GPU where there is one, and says where memory went.

python examples/track.py --steps 3 -o run.peak
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import peakline


def build(width: int, device: str) -> nn.Module:
    layers = [
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(4)
    ]
    return nn.Sequential(*layers).to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("-o", "--output", help="keeps the recording")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(args.width, device)
    optimizer = torch.optim.AdamW(model.parameters())
    with peakline.track(model=model, optimizer=optimizer) as run:
        for _ in range(args.steps):
            loss = model(torch.randn(args.batch, args.width, device=device)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    peak = run.peak()
    print(f"{peak.bytes:,} bytes on {peak.device}, in {peak.phase} of step {peak.step}")
    for name, size in peak.by_category.items():
        print(f"  {name:12} {size:>12,}")
    if args.output:
        run.save(args.output)


if __name__ == "__main__":
    main()
