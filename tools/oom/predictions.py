"""A language model that keeps its predictions for a metric at the end of the epoch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", choices=("scores", "ids"), default="scores")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gib", type=float, default=12, help="this program's share of the GPU")
    args = parser.parse_args()
    torch.cuda.set_per_process_memory_fraction(args.gib * 2**30 / torch.cuda.mem_get_info()[1])

    width, words = 512, 32768
    layers = (nn.TransformerEncoderLayer(width, 8, batch_first=True) for _ in range(4))
    model = nn.Sequential(nn.Embedding(words, width), *layers, nn.Linear(width, words)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    predictions = []
    for _ in range(args.steps):
        ids = torch.randint(words, (16, 512), device="cuda")
        scores = model(ids)
        F.cross_entropy(scores.flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        predictions.append(scores if args.keep == "scores" else scores.argmax(-1))
    torch.cuda.synchronize()
    print(f"trained {len(predictions)} steps")


if __name__ == "__main__":
    main()
