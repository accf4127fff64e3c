"""How long ops take, roughly: bytes over bandwidth, or FLOPs over a rate that alignment decides.

Tensor cores read rows in steps of 16 bytes. Where a row of a product's operand or result does not
begin at such a step, the library takes older kernels, which are several times slower. The rates
below were measured on an H200 (medians of products above 50 GFLOP), as were the copies; for another
GPU they are scaled by its SMs and clocks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from peakline._virtual_cuda._compiled._clocks import Clocks, clocks_of

_H200_SMS = 132
_COPY_BYTES_PER_SECOND = 4.2e12
_LAUNCH_SECONDS = 2e-6
_HALF = {16: 748e12, 4: 210e12, 2: 119e12}  # FLOP/s by the alignment of rows, in bytes
_TF32 = {16: 400e12, 4: 110e12}
_SINGLE = {4: 48e12}
_DOUBLE = {8: 55e12}
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


class Time:
    seconds = 0.0

    @property
    def milliseconds(self) -> float:
        return self.seconds * 1e3


class Roofline:
    def __init__(self, sms: int, clocks: Clocks) -> None:
        here, h200 = clocks, clocks_of("H200")
        self._compute = sms * here.sm_mhz / (_H200_SMS * h200.sm_mhz)
        self._copies = here.memory_mhz * here.bus_bits / (h200.memory_mhz * h200.bus_bits)

    @contextlib.contextmanager
    def timed(self) -> Iterator[Time]:
        """The time of all ops inside the block, also where the compiler has turned modes off."""
        time = Time()
        with _disable_current_modes(), _modes_allowed(), _Watch(self, time):
            yield time

    def product_seconds(self, m: int, k: int, n: int, dtype: torch.dtype, align: int) -> float:
        """`align`: bytes at whose multiples all rows begin."""
        rates = _rates(dtype)
        rate = max(rate for step, rate in rates.items() if align >= step)
        bytes_moved = (m * k + k * n + m * n) * dtype.itemsize
        return max(2 * m * k * n / (rate * self._compute), self.copy_seconds(bytes_moved))

    def copy_seconds(self, bytes_moved: int) -> float:
        return bytes_moved / (_COPY_BYTES_PER_SECOND * self._copies)


@contextlib.contextmanager
def _modes_allowed() -> Iterator[None]:
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        excluded = excluded.remove(key)
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield


def _rates(dtype: torch.dtype) -> dict[int, float]:
    if dtype in (torch.float16, torch.bfloat16):
        return _HALF
    if dtype == torch.float32:
        return _TF32 if torch.backends.cuda.matmul.allow_tf32 else _SINGLE
    return _DOUBLE


def row_alignment(tensor: torch.Tensor) -> int:
    """Bytes (16 at most) at whose multiples the rows of a matrix begin, whichever way it lies."""
    *_, first, second = tensor.stride()
    step = (second if first == 1 else first) * tensor.element_size()
    return math.gcd(step, 16)


class _Watch(TorchDispatchMode):
    def __init__(self, roofline: Roofline, time: Time) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._roofline = roofline
        self._time = time

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._time.seconds += self._seconds(func, args, result)
        return result

    def _seconds(self, func: Any, args: Any, result: Any) -> float:
        name = func._schema.name.removeprefix("aten::")
        tensors = [item for item in args if isinstance(item, torch.Tensor)]
        if not isinstance(result, torch.Tensor) or func.is_view or name.startswith("empty"):
            return 0.0
        if name in _PRODUCTS:
            left, right = tensors[-2], tensors[-1]
            align = min(row_alignment(tensor) for tensor in (left, right, result))
            *batch, m, k = left.shape
            one = self._roofline.product_seconds(m, k, right.shape[-1], left.dtype, align)
            return _LAUNCH_SECONDS + one * math.prod(batch)
        moved = sum(tensor.numel() * tensor.element_size() for tensor in (*tensors, result))
        return _LAUNCH_SECONDS + self._roofline.copy_seconds(moved)
