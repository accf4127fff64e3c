"""What the small programs of several ranks are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WIDTH, HEADS, BATCH, LENGTH = 64, 4, 8, 16


class Attention(nn.Module):
    """Written out, so that every rank's tensors are the same on every device."""

    def __init__(self, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._split(layer(x)) for layer in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.down(self.up(x).relu())  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Two experts on each rank of `group`; token i goes to expert i modulo their number."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.group = group or dist.group.WORLD
        self.count = 2 * dist.get_world_size(self.group)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        tokens = x.flatten(0, 1)
        world = dist.get_world_size(self.group)
        order = torch.arange(len(tokens), device=x.device) % self.count
        counts = torch.bincount(order, minlength=self.count)
        send = counts.view(world, -1).sum(1)
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts, group=self.group)
        receive = received.view(world, -1).sum(1)
        mine = all_to_all_single_autograd(
            tokens[order.argsort(stable=True)], receive.tolist(), send.tolist(), self.group
        )
        done = torch.cat([e(t) for e, t in zip(self.experts, mine.chunk(2), strict=True)])
        back = all_to_all_single_autograd(done, send.tolist(), receive.tolist(), self.group)
        return back.view_as(x)  # type: ignore[no-any-return]


KEPT: dict[str, int] = {}  # bytes


def train(model: nn.Module, step: Callable[[], None]) -> None:
    """Two steps, the second with optimizer states from the first."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters)
    for _ in range(2):
        step()
        KEPT["gradients"] = sum(size(parameter.grad) for parameter in parameters)
        optimizer.step()
        optimizer.zero_grad()
    KEPT["parameters"] = sum(map(size, parameters))
    states = [v for s in optimizer.state.values() for k, v in s.items() if k != "step"]
    KEPT["optimizer"] = sum(map(size, states))
    KEPT["step counts"] = sum(size(state["step"]) for state in optimizer.state.values())


def train_alone(model: nn.Module, device: torch.device) -> None:
    """On random numbers, with their sum as the loss."""
    shape = (BATCH, LENGTH, WIDTH)
    train(model, lambda: model(torch.randn(shape, device=device)).sum().backward())


def size(tensor: Any) -> int:
    local = getattr(tensor, "_local_tensor", tensor)
    return 0 if local is None else local.numel() * local.element_size()
