"""The ops of one forward: how long each takes, what it makes, and what backward needs of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import SAC_IGNORED_OPS

from peakline._dropin.op_times import CostModel, gives_view, tensors_in
from peakline._plan.selective import draws

_BLOCK = 512  # the allocator hands out multiples of it


@dataclass
class Op:
    name: str
    call: int  # of this op in the module, counted from 0
    ms: float
    bytes: int  # of what it makes; 0 for views and ops in place
    random: bool
    fixed: bool  # it is recomputed whatever is decided: a view, in place, or changed in place


@dataclass
class ModuleProfile:
    ops: list[Op] = field(default_factory=list)
    saved: int = 0  # bytes that forward makes and leaves for backward
    recomputed: int = 0  # how many ops a recomputation runs before it has all that backward needs
    input_bytes: int = 0

    @property
    def ms(self) -> float:
        return sum(op.ms for op in self.ops)


class OpProfiler(TorchDispatchMode):
    """Around one forward. What it makes is kept alive meanwhile, so that no address comes twice."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.profile = ModuleProfile()
        self._costs = CostModel(None)
        self._called: Counter[str] = Counter()
        self._maker: dict[int, int] = {}  # op that made a storage
        self._kept: list[Any] = []
        self._saved: set[int] = set()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda x: x)

    def __enter__(self) -> Any:
        self._hooks.__enter__()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._hooks.__exit__(*error)
        self.profile.saved = sum(
            _rounded(storage) for storage in self._kept if storage._cdata in self._saved
        )
        self._kept.clear()

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata in self._maker:
            self._saved.add(storage._cdata)
        self.profile.recomputed = len(self.profile.ops)
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func in SAC_IGNORED_OPS:
            return out
        name = str(func)
        call = self._called[name]
        self._called[name] += 1
        given = {t.untyped_storage()._cdata for t in tensors_in((args, kwargs))}
        fresh = {
            storage._cdata: storage
            for storage in (t.untyped_storage() for t in tensors_in(out))
            if storage._cdata not in given
        }
        changed = not fresh and not gives_view(func) and func._schema.is_mutable
        if changed:
            self._mark_changed(out)
        ms = 0.0 if gives_view(func) else self._costs.time(func, args, kwargs, out)
        size = sum(map(_rounded, fresh.values()))
        self.profile.ops.append(
            Op(name, call, ms, size, draws(func, args, kwargs), fixed=size == 0)
        )
        for key, storage in fresh.items():
            self._maker[key] = len(self.profile.ops) - 1
            self._kept.append(storage)
        return out

    def _mark_changed(self, out: Any) -> None:
        """What is changed in place cannot be kept: who made it is recomputed."""
        for tensor in tensors_in(out):
            maker = self._maker.get(tensor.untyped_storage()._cdata)
            if maker is not None:
                self.profile.ops[maker].fixed = True


def _rounded(storage: Any) -> int:
    return -(-int(storage.nbytes()) // _BLOCK) * _BLOCK
