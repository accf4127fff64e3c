"""Selective checkpointing in which some results wait on the host: eager programs.

torch's own selective checkpointing knows the policy for compiled programs, and recomputes in eager
ones what should be offloaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import SAC_IGNORED_OPS

from peakline._plan.offload import Hosted, is_worth_it

_CHANGED = "a result that the plan keeps was changed in place after it was made: {op}"


class _Kept:
    """A result that stays on the GPU. Nobody may have changed it when it is used."""

    def __init__(self, tensor: torch.Tensor, op: str) -> None:
        self._tensor, self._op, self._version = tensor.detach(), op, tensor._version

    def back(self) -> torch.Tensor:
        if self._tensor._version != self._version:
            raise RuntimeError(_CHANGED.format(op=self._op))
        return self._tensor


class _Forward(TorchDispatchMode):
    def __init__(self, choose: Callable[[Any, Any, Any], str], results: dict[Any, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._choose = choose
        self._results = results
        self._called: Counter[Any] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in SAC_IGNORED_OPS:
            return out
        number = self._called[func]
        self._called[func] += 1
        action = self._choose(func, args, kwargs or {})
        if action != "recompute":
            self._results[func, number] = tree_map(lambda x: _hold(x, action, str(func)), out)
        return out


def _hold(value: Any, action: str, op: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if action == "offload" and is_worth_it(value):
        return Hosted(value)
    return _Kept(value, op)


class _Recompute(TorchDispatchMode):
    def __init__(self, results: dict[Any, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._results = results
        self._called: Counter[Any] = Counter()

    def __enter__(self) -> Any:
        self._called.clear()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SAC_IGNORED_OPS:
            return func(*args, **(kwargs or {}))
        number = self._called[func]
        self._called[func] += 1
        if (func, number) not in self._results:
            return func(*args, **(kwargs or {}))
        held = self._results.pop((func, number))
        return tree_map(lambda x: x.back() if isinstance(x, (_Kept, Hosted)) else x, held)


def offloading_contexts(choose: Callable[[Any, Any, Any], str]) -> tuple[Any, Any]:
    """`choose` says for each op and its arguments, in forward's order: "keep", "offload" or
    "recompute"."""
    results: dict[Any, Any] = {}
    return _Forward(choose, results), _Recompute(results)
