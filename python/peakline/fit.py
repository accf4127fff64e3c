"""`peakline.fit`: the largest number for which a function's GPU memory does not run out."""

from __future__ import annotations

import contextlib
import gc
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from peakline import _C, _checks
from peakline._fit.search import Try, largest
from peakline.virtual_gpu import virtual_gpu


@dataclass(frozen=True)
class Fit:
    """What was found. `int(fit)` is the value, or 0 when none fits."""

    value: int | None
    tries: dict[int, bool]  # in the order in which they were tried
    exceptions: list[tuple[int, int]]  # (does not fit, a larger one that does)

    def __int__(self) -> int:
        return self.value or 0


def fit(
    fn: Callable[[int], Any],
    memory: int | str | None = None,
    low: int = 1,
    high: int = 1024,
    *,
    gpu: str | os.PathLike[str] = "h200",
    margin: float = 0.0,
) -> Fit:
    """The largest n from `low` to `high` for which `fn(n)` fits `memory` on `gpu`.

    `fn` builds what it needs, model and optimizer as well, and trains a step or three; it is called
    a few times, each time on a virtual GPU of its own. Only running out of GPU memory counts as not
    fitting: other exceptions are the caller's. `margin=0.05` keeps 5% free.
    """
    _checks.function(fn, "fit(fn)")
    low, high = _checks.whole(low, "fit(low=…)"), _checks.whole(high, "fit(high=…)")
    if low > high:
        raise ValueError(f"low is {low} and high {high}, so there is nothing to try")
    _checks.share(margin, "margin")
    limit = _checks.size(memory, "fit(memory=…)")
    if limit is None:
        with virtual_gpu(gpu):
            found = _C.vgpu.properties(0)
            limit = int(found["total_memory"] - found["context"])
    limit = int(limit * (1 - margin))

    def ask(values: Sequence[int]) -> list[Try]:
        return [_try(fn, value, gpu, limit) for value in values]

    answer = largest(range(low, high + 1), ask)
    fits = {value: one.fits for value, one in answer.tries.items()}
    return Fit(answer.value, fits, answer.exceptions)


def _try(fn: Callable[[int], Any], value: int, gpu: str | os.PathLike[str], limit: int) -> Try:
    gc.collect()  # what the last try left in cycles
    with virtual_gpu(gpu, memory=limit):
        with contextlib.redirect_stdout(io.StringIO()):
            fits = _survives(fn, value)
        need = torch.cuda.max_memory_allocated() if fits else 0
        return Try(fits, need, limit - torch.cuda.max_memory_reserved())


def _survives(fn: Callable[[int], Any], value: int) -> bool:
    try:
        fn(value)
    except torch.OutOfMemoryError:
        return False
    return True
