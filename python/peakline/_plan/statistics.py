"""Statistics that batch normalization keeps of what passes it: a recomputation passes it again, and
must not be counted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

_COUNT = "num_batches_tracked"


def that_count(module: nn.Module) -> list[_NormBase]:
    return [one for one in module.modules() if isinstance(one, _NormBase)]


class NotCounted:
    """For one recomputation after another, together with `inner`. With a momentum of nothing the
    statistics stay as they are, and backward is given the same tensors as in forward."""

    def __init__(self, modules: Sequence[_NormBase], inner: AbstractContextManager[Any]) -> None:
        self._modules, self._inner = modules, inner
        self._before: list[tuple[_NormBase, Any, Any]] = []

    def __enter__(self) -> None:
        self._inner.__enter__()
        for one in self._modules:
            self._before.append((one, one.momentum, one._buffers.get(_COUNT)))
            one.momentum = 0.0
            one._buffers[_COUNT] = None  # it is not counted where there is none

    def __exit__(self, *error: Any) -> None:
        while self._before:
            one, momentum, count = self._before.pop()
            one.momentum, one._buffers[_COUNT] = momentum, count
        self._inner.__exit__(*error)
