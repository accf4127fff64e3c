"""The ops of one forward: how long each takes, what it makes, and what backward needs of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
    saved: int = 0  # bytes that forward makes or is given, and leaves for backward
    recomputed: int = 0  # how many ops a recomputation runs before it has all that backward needs
    input_bytes: int = 0  # what recomputation starts from, beside what is there anyway
    parts: dict[str, ModuleProfile] = field(default_factory=dict)  # modules that it is made of

    @property
    def ms(self) -> float:
        return sum(op.ms for op in self.ops)


@dataclass
class _Span:
    """The ops of one part, by their places in the module's."""

    start: int
    given: list[torch.Tensor]
    end: int = 0
    last: int = 0  # the first that a recomputation of the part need not run
    calls: int = 0


class OpProfiler(TorchDispatchMode):
    """Around one forward. What it makes is kept alive meanwhile, so that no address comes twice."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.profile = ModuleProfile()
        self._costs = CostModel(None)
        self._called: Counter[str] = Counter()
        self._maker: dict[int, int] = {}  # op that made a storage
        self._kept: list[Any] = []
        self._saved: dict[int, set[str]] = {}  # storages that backward needs; parts that save them
        self._spans: dict[str, _Span] = {}
        self._part = ""  # that runs
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda x: x)

    def __enter__(self) -> Any:
        self._hooks.__enter__()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._hooks.__exit__(*error)
        self.profile.saved += sum(
            _rounded(storage)
            for storage in self._kept
            if storage._cdata in self._saved and storage._cdata in self._maker
        )
        self.profile.parts = {
            name: self._profile_of(name, span)
            for name, span in self._spans.items()
            if span.calls == 1
        }
        self._kept.clear()

    def given(self, tensors: list[torch.Tensor]) -> None:
        """What the module was given: recomputation starts from it. Called inside."""
        self.profile.input_bytes, held = self._inputs(tensors)
        self.profile.saved += held

    def _inputs(self, tensors: list[torch.Tensor]) -> tuple[int, int]:
        """Bytes of these, and of those that backward needs in any case."""
        sizes = {t.untyped_storage()._cdata: t.numel() * t.element_size() for t in tensors}
        return sum(sizes.values()), sum(sizes[key] for key in sizes if key in self._saved)

    @contextmanager
    def inside(self, part: str, tensors: list[torch.Tensor]) -> Iterator[None]:
        """A part of the module runs, and is given these. Parts of parts are not looked at."""
        if self._part:
            yield
            return
        span = self._spans.setdefault(part, _Span(len(self.profile.ops), list(tensors)))
        span.calls += 1
        self._part = part
        try:
            yield
        finally:
            self._part = ""
            span.end = len(self.profile.ops)

    def _profile_of(self, part: str, span: _Span) -> ModuleProfile:
        called: Counter[str] = Counter()
        ops = []
        for op in self.profile.ops[span.start : span.end]:
            ops.append(replace(op, call=called[op.name]))
            called[op.name] += 1
        saved = sum(
            _rounded(storage)
            for storage in self._kept
            if self._saved.get(storage._cdata) == {part}
            and span.start <= self._maker.get(storage._cdata, -1) < span.end
        )
        given, held = self._inputs(span.given)
        return ModuleProfile(ops, saved, max(0, span.last - span.start), given - held)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._maker:
            self._kept.append(storage)  # given, or a parameter
        self._saved.setdefault(storage._cdata, set()).add(self._part)
        self.profile.recomputed = len(self.profile.ops)
        if self._part:
            self._spans[self._part].last = len(self.profile.ops)
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
