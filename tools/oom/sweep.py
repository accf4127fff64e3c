"""Trials of a few learning rates. A trainer and its callbacks know one another, so a trial that is
over lies around until Python collects its garbage."""

import argparse
import gc

import torch
from torch import nn

import peakline


class LogLoss:
    def __init__(self, trainer: "Trainer") -> None:
        self.trainer = trainer

    def step_ended(self, loss: torch.Tensor) -> None:
        self.trainer.seen.append(loss.item())


class Trainer:
    def __init__(self, rate: float) -> None:
        self.seen: list[float] = []
        self.model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(12))).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)
        self.callbacks = [LogLoss(self)]

    def train(self, steps: int) -> float:
        for _ in range(steps):
            loss = self.model(torch.randn(256, 4096, device="cuda")).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            for callback in self.callbacks:
                callback.step_ended(loss)
        return min(self.seen)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--collect", action="store_true", help="garbage, after each trial")
    parser.add_argument("--explain", default="oom.html", help="a page, when memory runs out")
    parser.add_argument("--gib", type=float, default=6, help="this program's share of the GPU")
    args = parser.parse_args()
    torch.cuda.set_per_process_memory_fraction(args.gib * 2**30 / torch.cuda.mem_get_info()[1])

    rates, best = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5), {}
    with peakline.explain_oom(args.explain):
        for rate in rates:
            best[rate] = Trainer(rate).train(steps=2)
            if args.collect:
                gc.collect()
    print(f"trained {2 * len(rates)} steps")


if __name__ == "__main__":
    main()
