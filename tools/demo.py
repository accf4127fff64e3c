"""What `make demo` runs: three training steps of a small transformer, tracked and shown.

python tools/demo.py [RECORDING]
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import peakline

VOCABULARY, WIDTH, LAYERS, LENGTH, BATCH = 8192, 256, 4, 128, 8


class Gpt(nn.Module):
    """A decoder-only language model of ordinary torch parts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)  # type: ignore[no-any-return]


def train(path: Path) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    with peakline.track(model=model, optimizer=optimizer) as run:
        for _ in range(3):
            tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=device)
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
    run.save(path)


def main() -> int:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo.peak")
    path.parent.mkdir(parents=True, exist_ok=True)
    train(path)
    program = Path(sysconfig.get_path("scripts"), "peakline")
    return subprocess.run([program, "show", path], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
