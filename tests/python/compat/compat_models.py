"""Small models with everything that memory can be."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x)))) * self.scale


class Net(nn.Module):
    """`checkpointing`: None, "module", "function" (modules and bare ops), or "reentrant"."""

    def __init__(self, width: int = 64, depth: int = 3, checkpointing: str | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 16)
        self.checkpointing = checkpointing

    def _stretch(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([x, x]).relu()  # memory that no module inside the checkpoint makes
        for block in self.blocks[1:]:
            x = block(x)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](x)
        if self.checkpointing == "function":
            out = checkpoint(self._stretch, x, use_reentrant=False, preserve_rng_state=False)
            return self.head(out)  # type: ignore[no-any-return]
        for block in self.blocks[1:]:
            if self.checkpointing:
                reentrant = self.checkpointing == "reentrant"
                x = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=False)
            else:
                x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


def training(
    device: torch.device | str, width: int = 64, checkpointing: str | None = None
) -> tuple[Net, torch.optim.Optimizer, torch.Tensor]:
    with torch.device(device):
        model = Net(width, checkpointing=checkpointing)
        x = torch.randn(8, 32, width)
    return model, torch.optim.Adam(model.parameters(), foreach=True), x
