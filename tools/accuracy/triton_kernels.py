# mypy: disable-error-code="misc,no-untyped-def,no-untyped-call,no-any-return,import-not-found"
# mypy: disable-error-code="untyped-decorator"
"""A user's Triton kernel, for compiled_models.py: Triton wants kernels in a file of their own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def _scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), factor, BLOCK=1024)
    return out


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _scaled(x, 0.5)

    @staticmethod
    def backward(ctx, grad):
        return _scaled(grad.contiguous(), 0.5)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return Scaled.apply(x)


@triton.autotune(
    configs=[triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=["columns"]
)
@triton.jit
def _softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row + at, value / tl.sum(value, axis=0), mask=at < columns)


class SoftRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        _softmax[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        weighted = grad * out
        return weighted - out * weighted.sum(-1, keepdim=True)


def soft_rows(x: torch.Tensor) -> torch.Tensor:
    return SoftRows.apply(x)
