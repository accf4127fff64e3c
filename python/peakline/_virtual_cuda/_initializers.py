"""Initializers that draw again until no value is out of bounds: they end as likely as not.

Nobody knows the values, but how many are still out of bounds after some draws can be expected.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.nn import init

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine

_MOST = 0.9  # rejected: so that it ends where next to nothing is accepted


def install(patches: Patches, engine: Engine) -> None:
    original = init._no_grad_trunc_normal_

    @functools.wraps(original)
    def trunc_normal(
        tensor: Any, mean: float, std: float, a: float, b: float, *args: Any, **kwargs: Any
    ) -> Any:
        if tensor.device.type != "cuda" and not engine.is_virtual_host(tensor):
            return original(tensor, mean, std, a, b, *args, **kwargs)
        with Patches() as meanwhile:
            left = _Left(tensor.numel(), 1.0 - _accepted(mean, std, a, b), torch.Tensor.any)
            meanwhile.set(torch.Tensor, "any", lambda *a, **k: left.any(*a, **k))
            return original(tensor, mean, std, a, b, *args, **kwargs)

    patches.set(init, "_no_grad_trunc_normal_", trunc_normal)


def _accepted(mean: float, std: float, a: float, b: float) -> float:
    """The share of draws that torch keeps: from the normal distribution, or where most of that
    would be out of bounds, from the uniform one under it."""

    def below(x: float) -> float:
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    share = below(b) - below(a)
    if share > 0.3:
        return share
    highest = math.exp(-0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2)
    return min(1.0, share * std * math.sqrt(2.0 * math.pi) / ((b - a) * highest or 1.0))


class _Left:
    """Whether any of `count` values is out of bounds, asked after each draw."""

    def __init__(self, count: int, rejected: float, real: Any) -> None:
        self._expected = float(count)
        self._rejected = min(_MOST, max(0.0, rejected))
        self._real = real

    def any(self, mask: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
        self._real(mask, *args, **kwargs)  # which allocates
        self._expected *= self._rejected
        return self._expected >= 0.5
