"""Checks that a healthy run passes: torch.distributions' of their arguments and values, and a
program's own with `allclose`, of results that should be the same.

A check such as "rows that sum to one" asks what no interval of the elements tells. What is known to
be wrong still fails.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.testing import _comparison

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._options import Options


def install(patches: Patches, engine: Engine, options: Options) -> None:
    _watch_distributions(patches, engine)
    if options.may_be_close:
        _watch_closeness(patches, engine)


def _watch_distributions(patches: Patches, engine: Engine) -> None:
    original = torch._is_all_true

    @functools.wraps(original)
    def is_all_true(valid: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(valid, *args, **kwargs)
        if torch.compiler.is_compiling():
            return answer
        if not engine.is_virtual(answer) or engine.is_known(answer):
            return answer
        return answer.fill_(True)

    patches.set(torch, "_is_all_true", is_all_true)


def _watch_closeness(patches: Patches, engine: Engine) -> None:
    compare = _comparison.TensorLikePair._compare_regular_values_close

    def may_be_close(own: Any, other: Any, *args: Any, **kwargs: Any) -> bool:
        """Neither is known to be different from the other, nor known to be the same."""
        if not any(
            isinstance(one, torch.Tensor) and engine.is_virtual(one) for one in (own, other)
        ):
            return False
        every = torch.isclose(own, other, *args, **kwargs).all()
        asked = bool(every)  # counted: a loop may wait for another answer
        return not asked and not engine.is_known(every)

    def watched(original: Any) -> Any:
        @functools.wraps(original)
        def all_close(*args: Any, **kwargs: Any) -> bool:
            if torch.compiler.is_compiling() or len(args) < 2:
                return bool(original(*args, **kwargs))
            return may_be_close(*args, **kwargs) or bool(original(*args, **kwargs))

        return all_close

    @functools.wraps(compare)
    def compared(pair: Any, actual: Any, expected: Any, **kwargs: Any) -> None:
        how = {name: kwargs[name] for name in ("rtol", "atol", "equal_nan")}
        if not may_be_close(actual, expected, **how):
            compare(pair, actual, expected, **kwargs)

    patches.set(torch, "allclose", watched(torch.allclose))
    patches.set(torch.Tensor, "allclose", watched(torch.Tensor.allclose))
    patches.set(_comparison.TensorLikePair, "_compare_regular_values_close", compared)
