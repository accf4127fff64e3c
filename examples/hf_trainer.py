"""A Hugging Face Trainer with peakline's callback: a small GPT-2 on random tokens, no downloads.

python examples/hf_trainer.py -o run.peak                 # a real run, tracked
peakline estimate examples/hf_trainer.py -- --layers 12   # the same without a GPU
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from peakline.integrations.huggingface import PeaklineCallback


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(128) + index) % 1000
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("-o", "--output", help="keeps the recording")
    args = parser.parse_args()

    config = GPT2Config(n_layer=args.layers, n_embd=128, n_head=2, vocab_size=1000, n_positions=128)
    callback = PeaklineCallback(args.output)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            save_strategy="no",
            report_to=[],
        )
        model = GPT2LMHeadModel(config)
        Trainer(model, settings, train_dataset=Tokens(), callbacks=[callback]).train()
    if callback.run is not None:
        print(callback.run)


if __name__ == "__main__":
    main()
