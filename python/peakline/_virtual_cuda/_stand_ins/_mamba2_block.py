"""All of a Mamba 2 block behind its first product, as one function (mamba_ssm's `ssd_combined`).

It keeps that product and the scan's result, and computes the convolution again in backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from peakline._virtual_cuda._stand_ins import _causal_conv1d as conv
from peakline._virtual_cuda._stand_ins import _chunked_scan as scan
from peakline._virtual_cuda._stand_ins._gated_norm import norm_backward, norm_forward
from peakline._virtual_cuda._stand_ins._package import applied

Maybe = torch.Tensor | None


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The convolution's kernel takes rows at multiples of eight numbers."""
    return tensor if tensor.stride(1) % 8 == 0 else tensor.contiguous()


class Split(NamedTuple):
    """How one product's columns are divided: gate, inputs with B and C, time steps."""

    heads: int
    head: int
    groups: int
    states: int
    chunk: int

    @property
    def width(self) -> int:
        return self.heads * self.head

    def of(self, packed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shared = 2 * self.groups * self.states
        return torch.split(packed, [self.width, self.width + shared, self.heads], dim=-1)

    def parts(self, xbc: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shared = self.groups * self.states
        x, b, c = xbc.split([self.width, shared, shared], dim=-1)
        return self.by_heads(x), *(part.unflatten(-1, (self.groups, -1)) for part in (b, c))

    def convolved(self, xbc: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.parts(torch.empty_like(aligned(xbc).transpose(1, 2)).transpose(1, 2))

    def by_heads(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(*tensor.shape[:-1], self.heads, self.head)


class _SplitScan(torch.autograd.Function):
    """All of a Mamba 2 block behind its first product: it keeps that, and the scan's result."""

    @staticmethod
    def forward(
        ctx: Any,
        packed: torch.Tensor,
        conv_weight: torch.Tensor,
        conv_bias: Maybe,
        dt_bias: torch.Tensor,
        a: torch.Tensor,
        d: torch.Tensor,
        norm_weight: Maybe,
        out_proj: Maybe,
        out_bias: Maybe,
        split: Split,
    ) -> torch.Tensor:
        z, xbc, _ = split.of(packed)
        x, b, c = split.convolved(xbc)
        gate = split.by_heads(z)
        done = scan.forward(x, b, c, gate if norm_weight is None else None, split.chunk)
        kept = done.out if done.before_gate is None else done.before_gate
        out, deviations = done.out.flatten(2), None
        if norm_weight is not None:
            rows, deviations = norm_forward(out.flatten(0, 1), split.groups)
            out = rows.view_as(out)
        kept_proj = out_proj
        if out_proj is not None:
            if torch.is_autocast_enabled():
                kind = torch.get_autocast_dtype("cuda")
                out, kept_proj = out.to(kind), out_proj.to(kind)
                out_bias = None if out_bias is None else out_bias.to(kind)
            assert kept_proj is not None
            out = F.linear(out, kept_proj, out_bias)
        ctx.save_for_backward(
            *(packed, conv_weight, conv_bias, kept, a, d, dt_bias, norm_weight, deviations),
            *(kept_proj, out_bias),
        )
        ctx.split = split
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        packed, conv_weight, conv_bias, kept, a, d, dt_bias = ctx.saved_tensors[:7]
        norm_weight, _, out_proj, out_bias = ctx.saved_tensors[7:]
        split: Split = ctx.split
        grad = grads[0]
        again = torch.empty_like(kept).flatten(2) if out_proj is not None else None
        z, xbc, dt = split.of(packed)
        x, b, c = split.convolved(xbc)
        grad_packed = torch.empty_like(packed)
        grad_z, grad_xbc, grad_dt = split.of(grad_packed)
        of_conv = torch.empty_like(xbc)
        grad_x, grad_b, grad_c = split.parts(of_conv)
        into = {"x": grad_x, "b": grad_b, "c": grad_c, "dt": grad_dt}
        inner = grad if out_proj is None else F.linear(grad, out_proj.t())
        grad_norm: Maybe = None
        gate: Maybe = split.by_heads(z)
        scanned = inner
        if norm_weight is not None:
            rows, grad_norm = norm_backward(
                kept.flatten(2).flatten(0, 1), norm_weight, split.groups
            )
            scanned, gate = rows.view_as(inner), None
        else:
            into["z"] = split.by_heads(grad_z)
        again_here = out_proj is not None and gate is not None
        found = scan.backward(
            *(split.by_heads(scanned), x, dt, a, b, c, d, gate, dt_bias, split.chunk, into),
            again_here,
        )
        grad_proj: Maybe = None
        grad_out_bias: Maybe = None
        if out_proj is not None:
            last = found.gated.flatten(2) if found.gated is not None else again
            assert last is not None
            grad_proj = grad.flatten(0, 1).t() @ last.flatten(0, 1)
            grad_out_bias = grad.sum(dim=(0, 1)) if out_bias is not None else None
        _, grad_weight, grad_bias = conv.backward(
            aligned(xbc).transpose(1, 2),
            *(conv_weight, conv_bias, aligned(of_conv).transpose(1, 2)),
            aligned(grad_xbc).transpose(1, 2),
        )
        return (
            *(grad_packed, grad_weight, grad_bias, found.dt_bias, found.a, found.d, grad_norm),
            *(grad_proj, grad_out_bias, None),
        )


def mamba_split_conv1d_scan_combined(
    zxbcdt: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: Maybe,
    dt_bias: torch.Tensor,
    A: torch.Tensor,
    D: torch.Tensor,
    chunk_size: int,
    initial_states: Maybe = None,
    seq_idx: Maybe = None,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    activation: str | None = "silu",
    rmsnorm_weight: Maybe = None,
    rmsnorm_eps: float = 1e-6,
    outproj_weight: Maybe = None,
    outproj_bias: Maybe = None,
    headdim: int | None = None,
    ngroups: int = 1,
    norm_before_gate: bool = True,
    **kwargs: Any,
) -> torch.Tensor:
    heads = D.shape[0]
    head = D.shape[1] if D.dim() == 2 else headdim
    if head is None:
        raise AssertionError("headdim is needed where D has one number a head")
    states = (conv1d_weight.shape[0] - heads * head) // ngroups // 2
    split = Split(heads, head, ngroups, states, chunk_size)
    if zxbcdt.shape[-1] != 2 * split.width + 2 * ngroups * states + heads or return_final_states:
        raise NotImplementedError(
            "peakline's stand-in of mamba_ssm has neither columns beside the scan (d_ssm) nor "
            "return_final_states in mamba_split_conv1d_scan_combined"
        )
    out: torch.Tensor = applied(
        _SplitScan,
        *(zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, rmsnorm_weight),
        *(outproj_weight, outproj_bias, split),
    )
    return out
