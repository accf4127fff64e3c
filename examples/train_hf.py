"""Trains one of several known models on random data: transformers, no downloads.

peakline fit examples/train_hf.py --memory 16GiB --vary batch-size=1..256 -- --model gpt2
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Batch = dict[str, torch.Tensor]


class Recurrent(nn.Module):
    """A language model of three LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10000, 512)
        self.recurrent = nn.LSTM(512, 1024, 3, batch_first=True, dropout=0.1)
        self.head = nn.Linear(1024, 10000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(self.embed(tokens))
        return self.head(states)


class Stage(nn.Sequential):
    """Two convolutions of a U-Net, at one resolution."""

    def __init__(self, given: int, made: int) -> None:
        layers: list[nn.Module] = []
        for channels in (given, made):
            layers += [nn.Conv2d(channels, made, 3, padding=1), nn.GroupNorm(8, made), nn.SiLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """Down to an eighth of the resolution and up again, with what was there on the way."""

    WIDTHS = (64, 128, 256, 512)

    def __init__(self) -> None:
        super().__init__()
        narrow, wide = (3, *self.WIDTHS[:-1]), self.WIDTHS
        self.down = nn.ModuleList(Stage(a, b) for a, b in zip(narrow, wide, strict=True))
        pairs = list(zip(self.WIDTHS, self.WIDTHS[1:], strict=False))[::-1]
        self.up = nn.ModuleList(Stage(a + b, a) for a, b in pairs)
        self.head = nn.Conv2d(self.WIDTHS[0], 3, 1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        seen: list[torch.Tensor] = []
        for stage in self.down:
            picture = stage(F.max_pool2d(picture, 2) if seen else picture)
            seen.append(picture)
        seen.pop()
        for stage in self.up:
            picture = stage(torch.cat([F.interpolate(picture, scale_factor=2), seen.pop()], 1))
        return self.head(picture)


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=2048,
        use_cache=False,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config)
    torch.set_default_dtype(before)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def bert() -> Any:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig())


def vit() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        num_labels=1000,
    )
    return ViTForImageClassification(config)


def tokens(vocabulary: int, length: int) -> Callable[[int], Batch]:
    def make(batch: int) -> Batch:
        ids = torch.randint(0, vocabulary, (batch, length), device="cuda")
        return {"input_ids": ids, "labels": ids.clone()}

    return make


def pictures(batch: int) -> Batch:
    return {
        "pixel_values": torch.rand(batch, 3, 224, 224, device="cuda"),
        "labels": torch.randint(0, 1000, (batch,), device="cuda"),
    }


def large_pictures(batch: int) -> Batch:
    return {"pixel_values": torch.rand(batch, 3, 256, 256, device="cuda")}


# What builds the model, what makes a batch, and whether it trains under bfloat16 autocast.
MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Batch], bool]] = {
    "gpt2": (gpt2, tokens(50257, 512), False),
    "gpt2-bf16": (gpt2, tokens(50257, 512), True),
    "llama-1b": (llama, tokens(128256, 2048), False),
    "bert": (bert, tokens(30522, 256), False),
    "vit-large": (vit, pictures, True),
    "lstm": (Recurrent, tokens(10000, 128), False),
    "unet": (UNet, large_pictures, True),
}


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    if isinstance(model, Recurrent):
        ids = batch["input_ids"]
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    if isinstance(model, UNet):
        picture = batch["pixel_values"]
        return F.mse_loss(model(picture), picture)
    loss: torch.Tensor = model(**batch).loss
    return loss


def optimizer_of(name: str, model: Any) -> torch.optim.Optimizer:
    if name == "bert":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if name == "lstm":
        return torch.optim.Adam(model.parameters())
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    build, make_batch, narrow = MODELS[args.model]
    with torch.device("cuda"):
        model = build().train()
    optimizer = optimizer_of(args.model, model)
    batch = make_batch(args.batch_size)
    for step in range(args.steps):
        with torch.autocast("cuda", torch.bfloat16) if narrow else contextlib.nullcontext():
            loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
