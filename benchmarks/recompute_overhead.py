"""What recomputing costs the host: `python benchmarks/recompute_overhead.py [--rounds N]`.

A step of many short ops on one thread of the CPU, which a GPU would finish before the host has
issued the next: plain, every layer recomputed, and recomputed but for its products. torch's
checkpoint does it, with its own contexts for the products and with ours, and then peakline's, which
`peakline.checkpoint` takes where it can. All take turns in one process; the time is the thread's
own.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from peakline._plan import forgetful, selective

PRODUCT = torch.ops.aten.addmm.default
RULES = selective.Rules({str(PRODUCT): None}, {})


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.up(self.norm(x)))
        return x + torch.tanh(self.down(y) * 0.5 + 1.0)


def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op is PRODUCT else CheckpointPolicy.PREFER_RECOMPUTE


def in_python() -> tuple[Any, Any]:
    with mock.patch.object(selective, "nobody_watches", return_value=False):
        return selective.contexts(RULES)


def plain(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = layer(x)
    return out


def recomputed(layer: nn.Module, x: torch.Tensor, **contexts: Any) -> torch.Tensor:
    out: torch.Tensor = checkpoint(layer, x, use_reentrant=False, **contexts)
    return out


def forgotten(
    layer: nn.Module, x: torch.Tensor, contexts: Callable[[], tuple[Any, Any]] | None = None
) -> torch.Tensor:
    out: torch.Tensor = forgetful.call(layer, (x,), {}, contexts)
    return out


_torchs = functools.partial(create_selective_checkpoint_contexts, policy)
_ours = functools.partial(selective.contexts, RULES)
WAYS: dict[str, Callable[[nn.Module, torch.Tensor], torch.Tensor]] = {
    "plain": plain,
    "whole, torch's": recomputed,
    "whole, ours": forgotten,
    "products kept, torch's": functools.partial(recomputed, context_fn=_torchs),
    "… our contexts in Python": functools.partial(recomputed, context_fn=in_python),
    "… our contexts in C++": functools.partial(recomputed, context_fn=_ours),
    "products kept, ours": functools.partial(forgotten, contexts=_ours),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    layers = nn.ModuleList(Layer(16) for _ in range(args.layers))
    start = torch.randn(4, 16)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, run in WAYS.items():
            begin, x = time.thread_time(), start
            for layer in layers:
                x = run(layer, x)
            x.sum().backward()
            times[way].append(time.thread_time() - begin)
    found = {way: 1000 * statistics.median(one) for way, one in times.items()}
    for way, ms in found.items():
        print(f"{way:28} {ms:7.2f} ms  {ms / found['plain']:5.2f}x")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
