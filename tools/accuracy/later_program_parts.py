# mypy: disable-error-code="misc,call-arg,no-untyped-call,attr-defined,operator,arg-type,call-overload,union-attr,no-any-return"
# ruff: noqa: E501 (layers side by side)
"""Layers, an optimizer and a dataset of `later_program_models`, as their authors would write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset


class LowRank(nn.Module):
    """A frozen linear layer and two small matrices beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        like: dict[str, Any] = {"device": base.weight.device, "dtype": torch.float32}
        self.a = nn.Parameter(torch.randn(rank, base.in_features, **like) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, **like))

    def forward(self, x: Tensor) -> Tensor:
        change = F.linear(
            F.linear(F.dropout(x, 0.05, self.training).to(self.a.dtype), self.a), self.b
        )
        return self.base(x) + 2.0 * change.to(x.dtype)


class Lion:
    """Not one of torch's: signs of an average, parameter by parameter."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, decay: float) -> None:
        self.parameters, self.lr, self.decay = list(parameters), lr, decay
        self.means = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        for p, mean in zip(self.parameters, self.means, strict=True):
            if p.grad is None:
                continue
            p.mul_(1 - self.lr * self.decay)
            p.add_((mean * 0.9 + p.grad * 0.1).sign_(), alpha=-self.lr)
            mean.lerp_(p.grad, 0.01)

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None


class Sentences(Dataset[dict[str, Any]]):
    def __init__(self, count: int) -> None:
        self.lengths = [32 + 16 * (k % 13) for k in range(count)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = torch.arange(self.lengths[index]) % 20000 + 3
        return {"input_ids": ids, "labels": index % 5}


def padded(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    ids = nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }


class PackedBlock(nn.Module):
    """Attention within documents, and a gated layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.o = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)  # fmt: skip
        self.up, self.down = nn.Linear(width, 6 * width, bias=False), nn.Linear(3 * width, width, bias=False)  # fmt: skip

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], within: Tensor) -> Tensor:
        q, k, v = self.qkv(self.n1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = (self.turned(part, *turn) for part in (q, k))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=within)
        x = x + self.o(seen.transpose(1, 2).flatten(2))
        gate, value = self.up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)

    @staticmethod
    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).type_as(x)


class Translating(nn.Module):
    """Pictures to pictures: half the size at each level, and back beside what was there."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512, 512, 512)) -> None:
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList(self.smaller(a, b, k > 0) for k, (a, b) in enumerate(pairs))
        self.up = nn.ModuleList(
            self.larger(b if k == len(pairs) - 1 else 2 * b, a, 2 < k < 5)
            for k, (a, b) in reversed(list(enumerate(pairs)))
            if k > 0
        )
        self.last = nn.ConvTranspose2d(2 * widths[0], 3, 4, 2, 1)

    @staticmethod
    def smaller(a: int, b: int, norm: bool) -> nn.Sequential:
        parts: list[nn.Module] = [nn.LeakyReLU(0.2)] if norm else []
        parts.append(nn.Conv2d(a, b, 4, 2, 1, bias=not norm))
        return nn.Sequential(*parts, *([nn.BatchNorm2d(b)] if norm else []))

    @staticmethod
    def larger(a: int, b: int, drops: bool) -> nn.Sequential:
        parts = [nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b)]
        return nn.Sequential(*parts, *([nn.Dropout(0.5)] if drops else []))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        kept.pop()
        for layer in self.up:
            x = torch.cat([layer(x), kept.pop()], 1)
        return torch.tanh(self.last(F.relu(x)))


class Dense(nn.Module):
    """Each layer sees what all before it made."""

    def __init__(self, inputs: int, count: int, grow: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + k * grow), nn.ReLU(inplace=True), nn.Conv2d(inputs + k * grow, 4 * grow, 1, bias=False),
                nn.BatchNorm2d(4 * grow), nn.ReLU(inplace=True), nn.Conv2d(4 * grow, grow, 3, padding=1, bias=False),
            ) for k in range(count)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        kept = [x]
        for layer in self.layers:
            kept.append(layer(torch.cat(kept, 1)))
        return torch.cat(kept, 1)
