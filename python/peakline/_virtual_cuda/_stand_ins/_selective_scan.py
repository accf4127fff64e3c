"""mamba_ssm's selective scan, and the block of Mamba that has it in its middle.

A scan keeps its inputs, its result before the gate, and a state for every 2048 rows. The whole
block as one function keeps less: its convolution and time steps are computed again in backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from peakline._virtual_cuda._stand_ins import _causal_conv1d as conv
from peakline._virtual_cuda._stand_ins._package import applied

_ROWS_OF_A_STATE = 2048
Maybe = torch.Tensor | None


class Scanned(NamedTuple):
    out: torch.Tensor
    states: torch.Tensor
    gated: Maybe


class ScanGradients(NamedTuple):
    u: torch.Tensor
    delta: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    d: Maybe
    delta_bias: Maybe
    z: Maybe
    gated: Maybe


def scan(u: torch.Tensor, delta: torch.Tensor, a: torch.Tensor, z: Maybe) -> Scanned:
    """`u`, `delta`, `z`: (batch, channels, rows); `a`: (channels, states)."""
    if a.shape[1] > 256:
        raise RuntimeError("selective_scan only supports state dimension <= 256")
    gated = None if z is None else torch.empty_like(z)
    out = torch.empty_like(delta)
    chunks = -(-u.shape[2] // _ROWS_OF_A_STATE)
    shape = (*u.shape[:2], chunks, 2 * a.shape[1])
    return Scanned(out, torch.empty(shape, dtype=a.dtype, device=u.device), gated)


def scan_backward(
    u: torch.Tensor,
    delta: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    d: Maybe,
    z: Maybe,
    delta_bias: Maybe,
    out: Maybe,
    grad_z: Maybe = None,
    gated_again: bool = False,
) -> ScanGradients:
    if z is not None and grad_z is None:
        grad_z = torch.empty_like(z)
    gated = torch.empty_like(out) if gated_again and out is not None else None
    grad_u, grad_delta, grad_a = torch.empty_like(u), torch.empty_like(delta), torch.zeros_like(a)
    sums = [
        torch.zeros_like(item, dtype=torch.float32 if item.dim() > 2 else item.dtype)
        for item in (b, c)
    ]
    grad_d, grad_bias = (
        None if item is None else torch.zeros_like(item) for item in (d, delta_bias)
    )
    grad_b, grad_c = sums[0].to(b.dtype), sums[1].to(c.dtype)
    return ScanGradients(
        grad_u, grad_delta, grad_a, grad_b, grad_c, grad_d, grad_bias, grad_z, gated
    )


def _rows_dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: torch.Tensor,
        delta: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        d: Maybe,
        z: Maybe,
        delta_bias: Maybe,
        with_state: bool,
    ) -> Any:
        u, delta, b, c = (_rows_dense(tensor) for tensor in (u, delta, b, c))
        d = None if d is None else d.contiguous()
        z = None if z is None else _rows_dense(z)
        done = scan(u, delta, a, z)
        ctx.gated = z is not None
        ctx.save_for_backward(
            u, delta, a, b, c, d, z, delta_bias, done.states, done.out if ctx.gated else None
        )
        result = done.out if done.gated is None else done.gated
        if not with_state:
            return result
        last = done.states[:, :, -1, 1::2]
        ctx.mark_non_differentiable(last)
        return result, last

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        u, delta, a, b, c, d, z, delta_bias, _, out = ctx.saved_tensors
        grad = _rows_dense(grads[0])
        found = scan_backward(u, delta, a, b, c, d, z, delta_bias, out)
        del grad
        return (*found[:6], found.z, found.delta_bias, None)


def selective_scan_fn(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: Maybe = None,
    z: Maybe = None,
    delta_bias: Maybe = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    return applied(_Scan, u, delta, A, B, C, D, z, delta_bias, return_last_state)


class _Inner(torch.autograd.Function):
    """Convolution, projections, scan and gate of one block.

    Products are torch's own, so what they take comes by itself. Names as in Mamba's paper.
    """

    @staticmethod
    def forward(
        ctx: Any,
        xz: torch.Tensor,
        conv_weight: torch.Tensor,
        conv_bias: Maybe,
        x_proj: torch.Tensor,
        dt_proj: torch.Tensor,
        out_proj: torch.Tensor,
        out_bias: Maybe,
        a: torch.Tensor,
        d: Maybe,
        delta_bias: Maybe,
        recompute: bool,
    ) -> torch.Tensor:
        if torch.is_autocast_enabled():
            kind = torch.get_autocast_dtype("cuda")
            x_proj, dt_proj, out_proj = (weight.to(kind) for weight in (x_proj, dt_proj, out_proj))
            out_bias = None if out_bias is None else out_bias.to(kind)
        xz = _rows_dense(xz)
        x, z = xz.chunk(2, dim=1)
        conv_out: Maybe = torch.empty_like(x)
        assert conv_out is not None
        projected = F.linear(_flat(conv_out), x_proj)
        delta: Maybe = _time_steps(dt_proj, projected, len(x))
        assert delta is not None
        rank, states = dt_proj.shape[1], a.shape[1]
        b = _by_rows(projected[:, rank : rank + states], len(x))
        c = _by_rows(projected[:, -states:], len(x))
        d = None if d is None else d.contiguous()
        done = scan(conv_out, delta, a, z)
        if recompute:
            conv_out, delta = None, None
        ctx.save_for_backward(
            *(xz, conv_weight, conv_bias, projected, x_proj, dt_proj, out_proj, conv_out, delta),
            *(a, b, c, d, delta_bias, done.states, done.out),
        )
        ctx.has_bias = out_bias is not None
        assert done.gated is not None
        return F.linear(done.gated.transpose(1, 2), out_proj, out_bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (xz, conv_weight, conv_bias, projected, x_proj, dt_proj, out_proj, conv_out, delta) = (
            ctx.saved_tensors[:9]
        )
        a, b, c, d, delta_bias, _, out = ctx.saved_tensors[9:]
        rank, states = dt_proj.shape[1], a.shape[1]
        x, z = xz.chunk(2, dim=1)
        grad = _rows_dense(grads[0])
        if conv_out is None:
            conv_out, delta = torch.empty_like(x), _time_steps(dt_proj, projected, len(x))
        grad_xz = torch.empty_like(xz)
        grad_x, grad_z = grad_xz.chunk(2, dim=1)
        grad = grad.flatten(0, 1).t()
        grad_y = _unflat(out_proj.t() @ grad, len(x))
        found = scan_backward(conv_out, delta, a, b, c, d, z, delta_bias, out, grad_z, True)
        del grad_y
        assert found.gated is not None
        grad_out_proj = grad @ _flat(found.gated)
        grad_out_bias = grad.sum(1) if ctx.has_bias else None
        grad_projected = torch.empty_like(projected)
        columns = [_flat(part.squeeze(1)).contiguous() for part in (found.b, found.c)]
        grad_projected[:, rank : rank + states] = columns[0]
        grad_projected[:, -states:] = columns[1]
        grad_delta = _flat(found.delta).t()
        grad_dt_proj = grad_delta @ projected[:, :rank]
        grad_projected[:, :rank] = grad_delta.t() @ dt_proj
        grad_x_proj = grad_projected.t() @ _flat(conv_out)
        grad_conv = _flat(found.u).t()
        torch.addmm(grad_conv, x_proj.t(), grad_projected.t(), out=grad_conv)
        _, grad_conv_weight, grad_conv_bias = conv.backward(
            x, conv_weight, conv_bias, _unflat(grad_conv, len(x)), grad_x
        )
        return (
            *(grad_xz, grad_conv_weight, grad_conv_bias, grad_x_proj, grad_dt_proj),
            *(grad_out_proj, grad_out_bias, found.a, found.d, found.delta_bias, None),
        )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """(batch, channels, rows) as (batch x rows, channels)."""
    return tensor.transpose(1, 2).reshape(-1, tensor.shape[1])


def _unflat(tensor: torch.Tensor, batch: int) -> torch.Tensor:
    """(channels, batch x rows) as (batch, channels, rows)."""
    return tensor.view(tensor.shape[0], batch, -1).transpose(0, 1)


def _time_steps(dt_proj: torch.Tensor, projected: torch.Tensor, batch: int) -> torch.Tensor:
    return _unflat(dt_proj @ projected[:, : dt_proj.shape[1]].t(), batch)


def _by_rows(columns: torch.Tensor, batch: int) -> torch.Tensor:
    """(batch x rows, states) as (batch, 1, states, rows), in memory as well."""
    return columns.view(batch, -1, columns.shape[1]).transpose(1, 2).unsqueeze(1).contiguous()


def mamba_inner_fn(
    xz: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: Maybe,
    x_proj_weight: torch.Tensor,
    delta_proj_weight: torch.Tensor,
    out_proj_weight: torch.Tensor,
    out_proj_bias: Maybe,
    A: torch.Tensor,
    B: Maybe = None,
    C: Maybe = None,
    D: Maybe = None,
    delta_bias: Maybe = None,
    B_proj_bias: Maybe = None,
    C_proj_bias: Maybe = None,
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
    **norms: Any,
) -> torch.Tensor:
    given = {"B": B, "C": C, "B_proj_bias": B_proj_bias, "C_proj_bias": C_proj_bias, **norms}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            raise NotImplementedError(
                f"peakline's stand-in of mamba_ssm has no mamba_inner_fn with {name}"
            )
    weight = conv1d_weight.squeeze(1) if conv1d_weight.dim() == 3 else conv1d_weight
    conv.check(xz, weight, "silu")
    out: torch.Tensor = applied(
        _Inner,
        *(xz, weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight),
        *(out_proj_bias, A, D, delta_bias, checkpoint_lvl >= 1),
    )
    return out
