"""Looks for a case where the recorded peak is not the allocator's own: a few hundred small training
steps on a real GPU, over dtypes, layouts, vmap, checkpointing and autocast.

    python tools/exact_sweep.py [--only TEXT] [--seed N] [--json FILE]

Prints every case that differs, and a line of totals; exits with 1 when one does. Takes a few
minutes on an H200.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.func import grad, vmap
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import peakline

Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Work:
    """A differentiable function of its first argument and weights, for one sample or a batch."""

    name: str
    weights: tuple[tuple[int, ...], ...]
    sample: tuple[int, ...]
    run: Function


def conv2d(kernel: int, stride: int, groups: int, channels: int, size: int) -> Work:
    def run(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        y = functional.conv2d(x, first, stride=stride, padding=kernel // 2, groups=groups)
        return functional.conv2d(functional.gelu(y), second)

    weights = ((channels * 2, channels // groups, kernel, kernel), (channels, channels * 2, 1, 1))
    name = f"conv2d k{kernel} s{stride} g{groups} c{channels} {size}"
    return Work(name, weights, (channels, size, size), run)


def conv_transposed(channels: int, size: int) -> Work:
    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.conv_transpose2d(x, weight, stride=2)

    weights = ((channels, channels, 4, 4),)
    return Work(f"conv_transpose2d c{channels} {size}", weights, (channels, size, size), run)


def conv3d(channels: int, size: int) -> Work:
    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.conv3d(x, weight, padding=1)

    weights = ((channels * 2, channels, 3, 3, 3),)
    return Work(f"conv3d c{channels} {size}", weights, (channels, size, size, size), run)


def conv1d(channels: int, length: int) -> Work:
    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.conv1d(x, weight, padding=4, dilation=2)

    return Work(
        f"conv1d c{channels} {length}", ((channels * 2, channels, 5),), (channels, length), run
    )


def attention(heads: int, length: int, width: int, causal: bool) -> Work:
    def run(x: torch.Tensor, project: torch.Tensor) -> torch.Tensor:
        q, k, v = (x @ project).chunk(3, dim=-1)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    name = f"attention h{heads} l{length} d{width} {'causal' if causal else 'full'}"
    return Work(name, ((width, 3 * width),), (heads, length, width), run)


def sorting(length: int, top: int) -> Work:
    def run(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = torch.sort(x * scale, dim=-1).values
        best = torch.topk(y, top, dim=-1).values
        return best.sum() + torch.cumsum(y, -1).float().mean()

    return Work(f"sorting {length} top{top}", ((length,),), (8, length), run)


def works(dice: random.Random) -> list[Work]:
    """Sizes are odd on purpose: what is not split is what just misses being so."""
    found = [
        conv2d(3, 1, 1, 32, dice.randrange(40, 90)),
        conv2d(5, 2, 4, 48, dice.randrange(40, 90)),
        conv2d(1, 1, 1, 96, dice.randrange(30, 70)),
        conv2d(7, 2, 1, 24, dice.randrange(60, 130)),
        conv2d(3, 1, 64, 64, dice.randrange(40, 90)),
        conv_transposed(40, dice.randrange(20, 50)),
        conv3d(12, dice.randrange(12, 28)),
        conv1d(64, dice.randrange(1000, 9000)),
        attention(8, dice.randrange(100, 700), 64, True),
        attention(6, dice.randrange(100, 700), 80, False),
        sorting(dice.randrange(10_000, 90_000), 50),
    ]
    return found


DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LAYOUTS = ("contiguous", "channels_last")
MODES = ("plain", "vmap", "checkpoint")
AUTOCASTS = (None, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    work: Work
    dtype: torch.dtype
    layout: str
    mode: str
    autocast: torch.dtype | None
    batch: int

    @property
    def name(self) -> str:
        cast = "" if self.autocast is None else f", autocast {self.autocast}"
        return (
            f"{self.work.name}, {self.dtype}, {self.layout}, {self.mode}{cast}, batch {self.batch}"
        )


def cases(dice: random.Random) -> Iterator[Case]:
    for work in works(dice):
        for dtype, layout, mode, cast in itertools.product(DTYPES, LAYOUTS, MODES, AUTOCASTS):
            if layout == "channels_last" and (len(work.sample) not in (3, 4) or mode == "vmap"):
                continue
            if cast is not None and dtype is not torch.float32:
                continue
            yield Case(work, dtype, layout, mode, cast, dice.randrange(3, 24))


def tensor(shape: tuple[int, ...], case: Case) -> torch.Tensor:
    made = torch.randn(shape, device="cuda", dtype=case.dtype)
    if case.layout == "channels_last" and made.dim() in (4, 5):
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        made = made.to(memory_format=formats[made.dim()])
    return made


def autocast(case: Case) -> contextlib.AbstractContextManager[Any]:
    if case.autocast is None:
        return contextlib.nullcontext()
    return torch.autocast("cuda", dtype=case.autocast)


def step(case: Case, weights: list[torch.Tensor]) -> None:
    x = tensor((case.batch, *case.work.sample), case)
    with autocast(case):
        if case.mode == "vmap":
            each = tuple(range(1, len(weights) + 1))

            def loss(sample: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
                return case.work.run(sample.unsqueeze(0), *given).float().square().mean()

            found = vmap(grad(loss, argnums=each), in_dims=(0, *[None] * len(weights)))(x, *weights)
            for weight, gradient in zip(weights, found, strict=True):
                weight.grad = gradient.mean(0).to(weight.dtype)
            return
        if case.mode == "checkpoint":
            y = checkpoint(case.work.run, x, *weights, use_reentrant=False)
        else:
            y = case.work.run(x, *weights)
    y.float().square().mean().backward()


def difference(case: Case, steps: int = 3) -> tuple[int, int, list[str]]:
    """Recorded and real peak, and what the recording warns of."""
    weights = [
        tensor(shape, case).requires_grad_(case.mode != "vmap") for shape in case.work.weights
    ]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    with peakline.track() as run:
        for _ in range(steps):
            step(case, weights)
            for weight in weights:
                weight.grad = None
        torch.cuda.synchronize()
    return run.peak("cuda:0").bytes, torch.cuda.max_memory_allocated(), run.warnings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seed", type=int, default=0, help="of the sizes")
    parser.add_argument("--json", type=Path, help="write all results")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("exact_sweep: needs an NVIDIA GPU", file=sys.stderr)
        return 2
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    wrong = skipped = 0
    for i, case in enumerate(cases(random.Random(args.seed))):
        if args.only not in case.name:
            continue
        if i % 20 == 0:  # in between, what is cached shapes what comes next
            gc.collect()
            torch.cuda.empty_cache()
        try:
            recorded, real, warnings = difference(case)
        except (RuntimeError, NotImplementedError) as error:  # no kernel for this combination
            skipped += 1
            rows.append({"case": case.name, "skipped": str(error).split("\n")[0]})
            continue
        rows.append({"case": case.name, "recorded": recorded, "real": real, "warnings": warnings})
        if recorded != real or warnings:
            wrong += 1
            by = f"DIFFERS by {recorded - real}"
            print(f"{by}: {case.name}: recorded {recorded}, real {real} {warnings}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        if "skipped" in row:
            print(f"skipped {row['case']}: {row['skipped']}")
    print(
        f"{len(rows) - skipped} cases, {wrong} differ, {skipped} skipped, "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 1 if wrong or len(rows) == skipped else 0


if __name__ == "__main__":
    sys.exit(main())
