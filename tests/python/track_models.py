"""Small models that the tests train."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Mlp(nn.Module):
    def __init__(self, width: int = 64, hidden: int = 256) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(x)))


class Net(nn.Module):
    def __init__(self, layers: int = 3, width: int = 64, reentrant: bool | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Mlp(width) for _ in range(layers))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 8)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.reentrant is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return self.head(self.norm(x))


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, width: int = 64, batch: int = 32
) -> None:
    loss = model(torch.randn(batch, width)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def parameter_bytes(model: nn.Module) -> int:
    return sum(p.nbytes for p in model.parameters())


def buffer_bytes(model: nn.Module) -> int:
    return sum(b.nbytes for b in model.buffers())
