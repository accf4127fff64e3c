"""How long one op takes by the rule of torch's own RuntimeEstimator: a roofline.

An op takes as long as its bytes over the memory's rate, or half its FLOPs over three quarters of
the peak, whichever is longer. Views and fresh tensors take nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from peakline import _C
from peakline._dropin.op_times import profile_of, tensors_in

_REACHED = 0.75  # of the peak
_FLOPS_PER_MAC = 2


class Roofline:
    """Milliseconds on the GPU named by `gpu`: by default the virtual one that is on, the real one
    that is there, with the rates that torch reads from it, or an H200."""

    def __init__(self, gpu: str | None = None) -> None:
        real = gpu is None and not _C.vgpu.active() and torch.cuda.is_available()
        self._rates = None if real else profile_of(gpu).peaks

    def time(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> float:
        packet = func._overloadpacket
        if packet in _takes_nothing():
            return 0.0
        given, made = tensors_in((args, kwargs)), tensors_in(out)
        moved = sum(map(_bytes_of, (*given, *made)))
        ms = moved / self._dram_gbps() / 1e6
        kinds = [t.dtype for t in made if t.dtype in _SECTION]
        if packet in flop_registry and kinds:
            macs = flop_registry[packet](*args, **kwargs, out_val=out) / _FLOPS_PER_MAC
            peak = self._tflops(kinds[0])
            ms = max(ms, macs / (_REACHED * peak) / 1e9) if peak else ms
        return float(ms)

    def _dram_gbps(self) -> float:
        if self._rates is not None:
            return float(self._rates["dram_gbps"])
        from torch._inductor.utils import get_gpu_dram_gbps

        return float(get_gpu_dram_gbps())

    def _tflops(self, dtype: torch.dtype) -> float:
        if self._rates is not None:
            tf32 = dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"
            return float(self._rates["tf32_tflops" if tf32 else _SECTION[dtype]])
        from torch._inductor.utils import get_device_tflops

        return float(get_device_tflops(dtype))


_SECTION = {
    torch.float16: "tensor16_tflops",
    torch.bfloat16: "tensor16_tflops",
    torch.float32: "f32_tflops",
    torch.float64: "f64_tflops",
}


@functools.cache
def _takes_nothing() -> Any:
    from torch.utils._runtime_estimation import _IGNORE_OPS  # imports inductor: only when asked

    return _IGNORE_OPS


def _bytes_of(tensor: torch.Tensor) -> int:
    """A dimension that is expanded counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 else 1
    return int(count) * tensor.element_size()
