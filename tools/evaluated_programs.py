"""Two programs with an evaluation, as pytorch/examples has them, with made-up data and no other
library: what `peakline estimate` says of them can be measured on a GPU.

    python tools/evaluated_programs.py mnist                       # on a GPU: its peaks, as JSON
    peakline estimate tools/evaluated_programs.py -- mnist         # without one
    peakline estimate --steps all tools/evaluated_programs.py -- mnist
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

_DEVICE = "cuda"


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.few, self.many = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = self.many(F.relu(self.fc1(torch.flatten(self.few(x), 1))))
        return F.log_softmax(self.fc2(x), dim=1)


class Larger(nn.Module):
    """Pictures of three times the width and height."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 64, 5), (64, 64, 3), (64, 32, 3), (32, 9, 3))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, k, padding=k // 2) for a, b, k in sizes)
        self.shuffle = nn.PixelShuffle(3)

    def forward(self, x: Tensor) -> Tensor:
        for conv in list(self.convs)[:-1]:
            x = F.relu(conv(x))
        larger: Tensor = self.shuffle(self.convs[-1](x))
        return larger


def _loader(batch: int, *tensors: Tensor, shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*tensors), batch_size=batch, shuffle=shuffle)


def mnist() -> None:
    def digits(count: int) -> tuple[Tensor, Tensor]:
        return torch.rand(count, 1, 28, 28), torch.randint(0, 10, (count,))

    training, testing = _loader(64, *digits(1024), shuffle=True), _loader(1000, *digits(3000))
    model = Digits().to(_DEVICE)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    for _ in range(2):
        model.train()
        for x, y in training:
            optimizer.zero_grad()
            F.nll_loss(model(x.to(_DEVICE)), y.to(_DEVICE)).backward()
            optimizer.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in testing:
                guess = model(x.to(_DEVICE)).argmax(dim=1, keepdim=True)
                right += int(guess.eq(y.to(_DEVICE).view_as(guess)).sum().item())


def super_resolution() -> None:
    def pictures(count: int) -> tuple[Tensor, Tensor]:
        return torch.rand(count, 1, 85, 85), torch.rand(count, 1, 255, 255)

    training, testing = _loader(16, *pictures(160), shuffle=True), _loader(100, *pictures(200))
    model = Larger().to(_DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        for x, y in training:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x.to(_DEVICE)), y.to(_DEVICE))
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in testing:
                F.mse_loss(model(x.to(_DEVICE)), y.to(_DEVICE)).item()


PROGRAMS: dict[str, Callable[[], None]] = {"mnist": mnist, "super_resolution": super_resolution}

if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in PROGRAMS]:
        sys.exit(f"give one of {', '.join(PROGRAMS)}")
    PROGRAMS[sys.argv[1]]()
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print(json.dumps(dict(zip(("peak_allocated", "peak_reserved"), peaks, strict=True))))
