"""How long one op takes: by the cost model, or by running it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_flatten, tree_map

from peakline import _C

_NEEDS_GPU = (
    "operator-level-benchmark runs every op and needs a GPU, real or virtual; "
    "operator-level-cost-model and kernel-level-cost-model need none"
)
_WARM_UP, _TIMED = 2, 3


@functools.cache
def _schema(func: Any) -> tuple[list[tuple[str, Any]], bool]:
    """Arguments with their defaults, and whether the op gives nothing but views."""
    arguments = [(a.name, a.default_value) for a in func._schema.arguments]
    aliases = [r.alias_info for r in func._schema.returns]
    return arguments, bool(aliases) and all(a is not None and not a.is_write for a in aliases)


def gives_view(func: Any) -> bool:
    return _schema(func)[1] or torch.Tag.inplace_view in func.tags


def tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


class CostModel:
    """Milliseconds by the cost model, on the GPU named by `gpu`: by default the virtual one that is
    on, the real one that is there and known, or an H200.

    Until a tensor on a GPU is seen, all tensors count as if they were on it.
    """

    def __init__(self, gpu: str | None = None) -> None:
        self.profile = profile_of(gpu)
        self._on_gpu = False

    def time(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> float:
        tensors = tensors_in((args, kwargs, out))
        on_gpu = any(t.device.type == "cuda" for t in tensors)
        self._on_gpu |= on_gpu
        if not tensors or (self._on_gpu and not on_gpu):
            return 0.0
        declared, view = _schema(func)
        values = [*args]
        values += [kwargs.get(name, default) for name, default in declared[len(args) :]]
        name, _, overload = func._schema.name, None, func._schema.overload_name
        try:
            ms, _, _ = _C.cost.op_time(
                name, overload, values, tensors_in(out), view, True, self.profile
            )
        except (RuntimeError, ValueError):
            return 0.0  # sizes that are symbols have no time
        return float(ms)


def profile_of(gpu: str | None) -> Any:
    if gpu is None and not _C.vgpu.active() and torch.cuda.is_available():
        try:
            return _C.cost.Profile(torch.cuda.get_device_name())
        except ValueError:
            return _C.cost.Profile()
    return _C.cost.Profile(gpu)


class Benchmark:
    """Milliseconds by running an op a few times on tensors of its shapes, once for each shapes."""

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError(_NEEDS_GPU)
        self.failed: set[Any] = set()  # ops that cannot be run alone
        self._known: dict[Any, float] = {}

    def time(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> float:
        if gives_view(func) or not any(t.device.type == "cuda" for t in tensors_in((args, out))):
            return 0.0
        key = _key(func, args, kwargs)
        if key not in self._known:
            try:
                self._known[key] = _run(func, args, kwargs)
            except (RuntimeError, NotImplementedError):
                self.failed.add(func._overloadpacket)
                self._known[key] = 0.0
        return self._known[key]


def _key(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves, spec = tree_flatten((args, kwargs))
    shapes = tuple(
        (tuple(x.shape), x.stride(), x.dtype, x.device) if isinstance(x, torch.Tensor) else str(x)
        for x in leaves
    )
    return func, shapes, str(spec)


def _filled(value: Any) -> Any:
    """A tensor to compute with: of the same layout, on the device that the fake one names."""
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.fill_(1)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> float:
    with no_dispatch(), torch.no_grad():
        real_args, real_kwargs = tree_map(_filled, (args, kwargs))
        for _ in range(_WARM_UP):
            func(*real_args, **real_kwargs)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(_TIMED):
            func(*real_args, **real_kwargs)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / _TIMED
