"""mamba_ssm's norms with a gate: `ops.triton.layernorm_gated`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from peakline._virtual_cuda._stand_ins._package import applied

Maybe = torch.Tensor | None


def norm_forward(rows: torch.Tensor, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`rows` normalised, and one number for each row and group."""
    out = torch.empty_like(rows)
    return out, torch.empty(groups * len(rows), dtype=torch.float32, device=rows.device)


def norm_backward(
    rows: torch.Tensor, weight: torch.Tensor, groups: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of rows and weight; the weight's is summed up in one part for each program."""
    grad = torch.empty_like(rows)
    width = rows.shape[1] // groups
    most = 65536 // rows.element_size()
    warps = min(max(min(most, 1 << (width - 1).bit_length()) // 256, 1), 8)
    processors = torch.cuda.get_device_properties().multi_processor_count
    parts = math.ceil(processors * math.ceil(4 / warps) / groups)
    sums = torch.empty(parts, rows.shape[1], dtype=torch.float32, device=rows.device)
    return grad, sums.sum(0).to(weight.dtype)


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, z: Maybe, groups: int
    ) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        gate = None if z is None else z.reshape(-1, z.shape[-1])
        out, deviations = norm_forward(rows, groups)
        ctx.save_for_backward(rows, weight, deviations, gate)
        ctx.groups = groups
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        rows, weight, _, gate = ctx.saved_tensors
        grad = grads[0].reshape(rows.shape)
        grad_gate = None if gate is None else torch.empty_like(gate).view(grads[0].shape)
        grad_rows, grad_weight = norm_backward(rows, weight, ctx.groups)
        del grad
        return grad_rows.view(grads[0].shape), grad_weight, grad_gate, None


class RMSNorm(nn.Module):
    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)
        self.groups = hidden_size // (group_size or hidden_size)

    def forward(self, x: torch.Tensor, z: Maybe = None) -> torch.Tensor:
        out: torch.Tensor = applied(_GatedNorm, x, self.weight, z, self.groups)
        return out
