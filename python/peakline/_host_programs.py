"""Small training programs that the host bounds: measured on a real GPU, they tell its host's speed.

Their kernels take next to nothing, so a part of a step (forward, backward, optimizer) takes as long
as the host needs to issue it: ops called by the program, with or without a record for backward, ops
called by autograd, and Python between them. How many there are of each, the same programs tell on a
virtual GPU (`python -m peakline._host_programs`), since its clock counts them. Four unknowns, and
more than a dozen measured parts.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

UNKNOWN = ("host_op_us", "host_backward_us", "host_python_us", "host_plain_us")
_HOST = (*UNKNOWN, "host_launch_us", "host_sync_us")
_WARM_UP, _TIMED = 4, 15
Parts = list[float]


class Attention(nn.Module):
    """A layer that mostly asks libraries: products, attention, norms, dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.v, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.drop = nn.Dropout(0.1)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], 2, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (self.heads(part(y)) for part in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(seen))
        out: Tensor = x + self.drop(self.mlp(self.after(x)))
        return out


class Gated(nn.Module):
    """A layer with many ops that only start a kernel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.up, self.gate = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        left, right = y.chunk(2, -1)
        turned = y * 0.5 + torch.cat((-right, left), -1) * 0.5
        out: Tensor = x + F.silu(self.gate(turned)) * self.up(turned)
        return out


class Convolved(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.b = nn.Conv2d(width, width, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(y)) + x)


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


class Evaluation:
    """A forward pass of which nothing is recorded, as the only part."""

    def __init__(self, net: nn.Module, x: Tensor) -> None:
        self._net, self._x = net.eval(), x

    def step(self, clock: Callable[[], float]) -> Parts:
        begin = clock()
        with torch.no_grad():
            self._net(self._x).float().square().mean()
        return [clock() - begin, 0.0, 0.0]


class Program:
    """A step in three parts, with a reading of `clock` before, between and after them."""

    def __init__(self, net: nn.Module, x: Tensor, momentum: bool, half: bool) -> None:
        self._net, self._x, self._half = net, x, half
        self._optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            if momentum
            else torch.optim.AdamW(net.parameters())
        )

    def step(self, clock: Callable[[], float]) -> Parts:
        begin = clock()
        on = (
            torch.autocast("cuda", dtype=torch.bfloat16) if self._half else contextlib.nullcontext()
        )
        with on:
            loss = self._net(self._x).float().square().mean()
        forward = clock()
        loss.backward()
        backward = clock()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return [forward - begin, backward - forward, clock() - backward]


def programs() -> dict[str, Program | Evaluation]:
    width, layers = 64, 12
    words, picture = (
        torch.randn(2, 16, width, device="cuda"),
        torch.randn(2, 16, 8, 8, device="cuda"),
    )

    def stacked(make: Callable[[int], nn.Module], size: int) -> nn.Module:
        return nn.Sequential(*(make(size) for _ in range(layers))).cuda()

    return {
        "attention": Program(stacked(Attention, width), words, momentum=False, half=False),
        "attention, 16 bits": Program(stacked(Attention, width), words, momentum=False, half=True),
        "attention, checkpointed": Program(
            stacked(lambda w: Checkpointed(Attention(w)), width), words, momentum=True, half=False
        ),
        "gated": Program(stacked(Gated, width), words, momentum=False, half=False),
        "convolved": Program(stacked(Convolved, 16), picture, momentum=True, half=False),
        "attention, evaluated": Evaluation(stacked(Attention, width), words),
        "gated, evaluated": Evaluation(stacked(Gated, width), words),
        "convolved, evaluated": Evaluation(stacked(Convolved, 16), picture),
    }


def measured() -> dict[str, Parts]:
    """Microseconds of the host for each part of each program, on the GPU at hand."""
    found: dict[str, Parts] = {}
    for name, program in programs().items():
        steps = []
        for _ in range(_WARM_UP + _TIMED):
            torch.cuda.synchronize()
            steps.append(program.step(lambda: 1e6 * time.perf_counter()))
        kept = steps[_WARM_UP:]
        found[name] = [statistics.median(step[i] for step in kept) for i in range(3)]
    return found


def counts() -> dict[str, list[Parts]]:
    """How often each unknown is in each part: {program: [[of the unknowns] of forward, ...]}.

    By a child process, since this one has a real GPU: there, a clock that one unknown moves.
    """
    command = [sys.executable, "-m", "peakline._host_programs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise RuntimeError(f"the virtual GPU that counts the host's work failed: {why}")
    answer: dict[str, list[Parts]] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _counted() -> dict[str, list[Parts]]:
    by_unknown = [_host_ms(name) for name in UNKNOWN]
    return {
        program: [[one[program][part] for one in by_unknown] for part in range(3)]
        for program in by_unknown[0]
    }


def _host_ms(unknown: str) -> dict[str, Parts]:
    """Of each part where only `unknown` costs the host anything: a millisecond."""
    import peakline
    from peakline import _C

    lines = [f"{key} = {1000 if key == unknown else 0}" for key in _HOST]
    known = [
        line
        for line in _C.cost.Profile("h200").to_toml().splitlines()
        if line.split(" =")[0] not in _HOST
    ]
    at = known.index("[estimated]") + 1
    text = "\n".join([*known[:at], *lines, *known[at:]]) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counting.toml"
        path.write_text(text)
        with peakline.virtual_gpu(str(path)):
            found: dict[str, Parts] = {}
            for name, program in programs().items():
                for _ in range(2):
                    found[name] = program.step(lambda: _C.vgpu.timing().to_dict()["host_ms"])
            return found


def fitted(times: dict[str, Parts], how_often: dict[str, list[Parts]]) -> dict[str, float]:
    """The unknowns, none below zero, that explain the measured parts best, each part alike."""
    rows, values = [], []
    for program, parts in times.items():
        for part, us in enumerate(parts):
            if us > 0:
                rows.append([count / us for count in how_often[program][part]])
                values.append(1.0)
    return dict(zip(UNKNOWN, _least_squares(rows, values), strict=True))


def _least_squares(rows: list[Parts], values: Parts) -> Parts:
    """One unknown after another, until they rest: few unknowns, and no sum is below zero."""
    found = [0.0] * len(rows[0])
    for _ in range(2000):
        for i in range(len(found)):
            weight = sum(row[i] * row[i] for row in rows)
            if weight == 0:
                continue
            rest = sum(
                row[i] * (value - sum(a * b for a, b in zip(row, found, strict=True)))
                for row, value in zip(rows, values, strict=True)
            )
            found[i] = max(0.0, found[i] + rest / weight)
    return found


if __name__ == "__main__":
    print(json.dumps(_counted()))
