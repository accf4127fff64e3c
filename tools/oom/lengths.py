"""A tagger that keeps its features, with batches padded to their longest sentence, which grow.

What is kept lies in blocks that the step before has left. Later steps are too long for the rest of
them, and they cannot be given back: enough memory is free in sum, but in no one piece.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import peakline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--explain", default="oom.html", help="a page, when memory runs out")
    parser.add_argument("--gib", type=float, default=12.4, help="this program's share of the GPU")
    args = parser.parse_args()
    torch.cuda.set_per_process_memory_fraction(args.gib * 2**30 / torch.cuda.mem_get_info()[1])

    with peakline.explain_oom(args.explain):
        train(lengths=range(256, 1025, 64))


def train(lengths: range) -> None:
    width, tags = 1024, 16384
    model = nn.Sequential(
        nn.Embedding(50257, width),
        *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(8)),
        nn.Linear(width, tags),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    kept = []
    for length in lengths:
        ids = torch.randint(50257, (32, length), device="cuda")
        wanted = torch.randint(tags, (32, length), device="cuda")
        features = model[:-1](ids)
        kept.append(features.detach().half())
        scores = model[-1](features)
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    print(f"trained {len(lengths)} steps")


if __name__ == "__main__":
    main()
