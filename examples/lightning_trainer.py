"""A Lightning Trainer with peakline's callback.

python examples/lightning_trainer.py -o run.peak                  # a real run, tracked
peakline estimate examples/lightning_trainer.py -- --width 4096   # the same without a GPU
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from peakline.integrations.lightning import PeaklineCallback


class Regression(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.mse_loss(self.body(batch[0]), batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("-o", "--output", help="keeps the recording")
    args = parser.parse_args()

    data = TensorDataset(torch.randn(args.batch * args.steps, args.width))
    callback = PeaklineCallback(args.output)
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(
        max_steps=args.steps,
        callbacks=[callback],
        enable_progress_bar=False,
        enable_model_summary=False,
        **quiet,
    )
    trainer.fit(Regression(args.width), DataLoader(data, args.batch))
    if callback.run is not None:
        print(callback.run)


if __name__ == "__main__":
    main()
