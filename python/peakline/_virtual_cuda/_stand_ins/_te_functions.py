"""transformer_engine's linear layers and norms: what they keep, in half precision and in FP8.

All products share one workspace. In FP8 a tensor is kept twice while both products of a layer need
it, as it is and transposed, where the GPU multiplies FP8 in one layout only (before Blackwell).
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from peakline._virtual_cuda._stand_ins._package import applied

Maybe = torch.Tensor | None
_fp8_enabled: contextvars.ContextVar[bool] = contextvars.ContextVar("fp8", default=False)


def fp8_is_on() -> bool:
    return _fp8_enabled.get()


@contextlib.contextmanager
def fp8_set(enabled: bool) -> Iterator[None]:
    before = _fp8_enabled.set(enabled)
    try:
        yield
    finally:
        _fp8_enabled.reset(before)


class Workspace:
    """cuBLAS's, of transformer_engine's own: made with the first product, and kept."""

    def __init__(self) -> None:
        self._memory: dict[torch.device, torch.Tensor] = {}

    def need(self, device: torch.device) -> None:
        if device not in self._memory:
            hopper = torch.cuda.get_device_properties(device).major >= 9
            size = 32 * 2**20 + 1024 if hopper else 4 * 2**20
            self._memory[device] = torch.empty(size, dtype=torch.uint8, device=device)


class Quantized(NamedTuple):
    """A tensor in FP8: rows for one product, columns for another, each with a scale."""

    rows: Maybe
    columns: Maybe
    scale: torch.Tensor

    def columns_alone(self) -> Quantized:
        return self if self.columns is None else self._replace(rows=None)


def quantized(tensor: torch.Tensor, columns: bool) -> Quantized:
    scale = torch.empty(1, dtype=torch.float32, device=tensor.device)
    rows = torch.empty(tensor.shape, dtype=torch.uint8, device=tensor.device)
    both_layouts = torch.cuda.get_device_properties(tensor.device).major >= 10
    if not columns or both_layouts:
        return Quantized(rows, None, scale)
    flat = tensor.flatten(0, -2)
    turned = torch.empty(flat.shape[::-1], dtype=torch.uint8, device=tensor.device)
    return Quantized(rows, turned, scale)


class _Linear(torch.autograd.Function):
    """With a norm before it where `norm` says which: then it keeps that one's input and result."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: Maybe,
        norm_weight: Maybe,
        norm_bias: Maybe,
        norm: int,
        kind: torch.dtype,
        workspace: Workspace,
        with_norm: bool,
    ) -> Any:
        ctx.norm, ctx.fp8, ctx.workspace = norm, fp8_is_on(), workspace
        x = x if x.dtype == kind else x.to(kind)
        numbers = _numbers(x, norm)
        source = x
        if norm and (with_norm or not ctx.fp8):  # a norm may give FP8 at once
            source = torch.empty_like(x)
        kept_x: list[Maybe] = [source]
        kept_weight: list[Maybe] = [weight if weight.dtype == kind else weight.to(kind)]
        if ctx.fp8:
            _check_fp8(x, weight)
            small = quantized(source, columns=ctx.needs_input_grad[1])
            small_weight = quantized(weight, columns=ctx.needs_input_grad[0] or bool(norm))
            kept_x, kept_weight = list(small.columns_alone()), list(small_weight)
        if bias is not None and bias.dtype != kind:
            bias = bias.to(kind)
        workspace.need(x.device)
        out = torch.empty(*x.shape[:-1], weight.shape[0], dtype=kind, device=x.device)
        if not ctx.needs_input_grad[1]:
            kept_x = [None]
        ctx.save_for_backward(
            *(x if norm else None, norm_weight, norm_bias, *numbers),
            *(weight, bias, *kept_weight, *kept_x),
        )
        ctx.kind, ctx.shape = kind, x.shape
        return (out, source) if with_norm else out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, norm_weight, norm_bias = ctx.saved_tensors[:3]
        weight, bias = ctx.saved_tensors[3 + ctx.norm : 5 + ctx.norm]
        grad = grads[0].contiguous()
        ctx.workspace.need(grad.device)
        # In FP8 the bias's gradient comes with the quantized one, otherwise with the weight's.
        grad_bias = None if bias is None or not ctx.fp8 else _like(bias, ctx.kind)
        small = quantized(grad, columns=ctx.needs_input_grad[1]) if ctx.fp8 else None
        grad_x: Maybe = None
        if ctx.needs_input_grad[0] or ctx.norm:
            grad_x = torch.empty(ctx.shape, dtype=ctx.kind, device=grad.device)
        grad_weight = _like(weight, ctx.kind) if ctx.needs_input_grad[1] else None
        if bias is not None and grad_bias is None:
            grad_bias = _like(bias, ctx.kind)
        del small
        of_norm: list[Maybe] = [None, None]
        if ctx.norm:
            grad_x, *of_norm = _norm_backward(x, norm_weight, norm_bias)
        return (grad_x, grad_weight, grad_bias, *of_norm, None, None, None, None)


def _like(tensor: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=kind, device=tensor.device)


def _check_fp8(x: torch.Tensor, weight: torch.Tensor) -> None:
    rows = x.numel() // x.shape[-1]
    if rows % 8 or x.shape[-1] % 16 or weight.shape[0] % 8 or weight.shape[1] % 16:
        raise AssertionError(
            "FP8 execution requires the product of all dimensions except the last to be divisible "
            f"by 8 and the last dimension to be divisible by 16, but got {tuple(x.shape)} and "
            f"{tuple(weight.shape)}"
        )


def _numbers(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    """A layer norm keeps two for each row, an RMS norm one."""
    rows = x.numel() // x.shape[-1]
    return [torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(count)]


def _norm_backward(
    x: torch.Tensor, weight: torch.Tensor, bias: Maybe
) -> tuple[torch.Tensor, torch.Tensor, Maybe]:
    """The weights' gradients are summed up in one part for each processor."""
    results = (torch.empty_like(x), torch.empty_like(weight))
    grad_bias = None if bias is None else torch.empty_like(bias)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    parts = min(processors, x.numel() // x.shape[-1])
    sums = [
        torch.empty(parts, weight.numel(), dtype=torch.float32, device=x.device)
        for item in (weight, bias)
        if item is not None
    ]
    del sums
    return *results, grad_bias


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Maybe, kind: torch.dtype
    ) -> torch.Tensor:
        x = x.contiguous()
        x = x if x.dtype == kind else x.to(kind)
        numbers = _numbers(x, 1 if bias is None else 2)
        out = torch.empty_like(x)
        ctx.save_for_backward(x, weight, bias, *numbers)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, weight, bias, *_ = ctx.saved_tensors
        grad = grads[0].contiguous()
        results = _norm_backward(x, weight, bias)
        del grad
        return (*results, None)


def working_dtype(x: torch.Tensor, parameters: Iterator[torch.Tensor]) -> torch.dtype:
    if torch.is_autocast_enabled():
        return torch.get_autocast_dtype("cuda")
    for parameter in parameters:
        if parameter.dtype != x.dtype:
            raise TypeError(
                "Data types for parameters must match when outside of autocasted region. Found "
                f"input dtype: {x.dtype} and parameter dtype: {parameter.dtype}"
            )
    return x.dtype


def linear(x: torch.Tensor, weight: Any, bias: Any, kind: Any, workspace: Workspace) -> Any:
    return applied(_Linear, x, weight, bias, None, None, 0, kind, workspace, False)


def normed_linear(
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    norm_weight: Any,
    norm_bias: Any,
    kind: Any,
    workspace: Workspace,
    with_norm: bool,
) -> Any:
    numbers = 1 if norm_bias is None else 2
    given = (x, weight, bias, norm_weight, norm_bias, numbers, kind, workspace, with_norm)
    return applied(_Linear, *given)


def norm(x: torch.Tensor, weight: Any, bias: Any, kind: torch.dtype) -> torch.Tensor:
    out: torch.Tensor = applied(_Norm, x, weight, bias, kind)
    return out
