"""causal_conv1d: a short convolution along each channel of a sequence.

It keeps its input and weights, and allocates its result; gradients of weights are summed up in
float32. With deterministic algorithms these sums have a part for each chunk of the sequence.
"""

from __future__ import annotations

from typing import Any

import torch

from peakline._virtual_cuda._stand_ins._package import Package, Region, applied

VERSION = "1.6.1"
_ACTIVATIONS = (None, "silu", "swish")


def package(region: Region) -> Package:
    functions = {
        "causal_conv1d_fn": region.around(causal_conv1d_fn),
        "causal_conv1d_update": region.around(causal_conv1d_update),
    }
    return Package(
        "causal_conv1d",
        VERSION,
        {
            "causal_conv1d": {"__version__": VERSION, **functions},
            "causal_conv1d.causal_conv1d_interface": functions,
            "causal_conv1d.causal_conv1d_varlen": {
                "causal_conv1d_varlen_states": region.around(causal_conv1d_varlen_states)
            },
        },
        for_programs_only=True,
    )


def check(x: torch.Tensor, weight: torch.Tensor, activation: str | None) -> None:
    if activation not in _ACTIVATIONS:
        raise NotImplementedError("activation must be None, silu, or swish")
    if not x.is_cuda:
        raise RuntimeError("Expected x.is_cuda() to be true, but got false.")
    if not 2 <= weight.shape[-1] <= 4:
        raise RuntimeError("causal_conv1d only supports width between 2 and 4")
    if channels_last(x) and x.shape[1] % 8:
        raise RuntimeError("causal_conv1d only supports channel dimension divisible by 8 for now")


def channels_last(x: torch.Tensor) -> bool:
    return x.stride(1) == 1 and x.stride(2) > 1


def dense_somewhere(x: torch.Tensor) -> torch.Tensor:
    """(batch, channels, rows), with either channels or rows next to each other."""
    return x if x.stride(1) == 1 or x.stride(2) == 1 else x.contiguous()


def backward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    grad: torch.Tensor,
    grad_x: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Gradients of `x`, which may have its place already, of weights and bias."""
    grad_x = torch.empty_like(x) if grad_x is None else grad_x
    sums = torch.zeros_like(weight, dtype=torch.float32)
    bias_sums = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    if channels_last(x) and grad.stride(1) != 1:
        grad = grad.transpose(1, 2).contiguous()
    elif not channels_last(x) and grad.stride(2) != 1:
        grad = grad.contiguous()
    if torch.are_deterministic_algorithms_enabled():
        _add_parts(x, sums)
        if bias_sums is not None:
            _add_parts(x, bias_sums)
    grad_weight = sums.to(weight.dtype)
    if bias is None or bias_sums is None:
        return grad_x, grad_weight, None
    return grad_x, grad_weight, bias_sums.to(bias.dtype)


def _add_parts(x: torch.Tensor, sums: torch.Tensor) -> None:
    parts = torch.zeros(*_parts(x), *sums.shape, device=x.device)
    sums.add_(parts.flatten(0, -1 - sums.dim()).sum(0))


def _parts(x: torch.Tensor) -> tuple[int, ...]:
    batch, _, rows = x.shape
    if not channels_last(x):
        return (batch,)
    at_once = 64 if rows <= 128 else 128
    return batch, -(-rows // at_once)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        seq_idx: torch.Tensor | None,
        initial_states: torch.Tensor | None,
        with_final_states: bool,
        final_states: torch.Tensor | None,
    ) -> Any:
        x = dense_somewhere(x)
        bias = None if bias is None else bias.contiguous()
        if with_final_states and final_states is None:
            shape = (len(x), weight.shape[1] - 1, x.shape[1])
            final_states = torch.empty(shape, device=x.device, dtype=x.dtype).transpose(1, 2)
        out = torch.empty_like(x)
        ctx.save_for_backward(x, weight, bias, seq_idx, initial_states)
        return (out, final_states) if with_final_states else out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, weight, bias, _, initial_states = ctx.saved_tensors
        grad = dense_somewhere(grads[0])
        results = backward(x, weight, bias, grad)
        wanted = initial_states is not None and ctx.needs_input_grad[4]
        states = torch.empty_like(initial_states) if wanted else None
        return (*results, None, states, None, None)


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """`x`: (batch, channels, rows); `weight`: (channels, width)."""
    check(x, weight, activation)
    return applied(
        _Convolution,
        *(x, weight, bias, seq_idx, initial_states, return_final_states, final_states_out),
    )


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """One row more, or a few: the state changes in place."""
    if activation not in _ACTIVATIONS:
        raise NotImplementedError("activation must be None, silu, or swish")
    return torch.empty_like(x)


def causal_conv1d_varlen_states(
    x: torch.Tensor, cu_seqlens: torch.Tensor, state_len: int
) -> torch.Tensor:
    """The last rows of each packed sequence. `x`: (all rows, channels)."""
    shape = (cu_seqlens.numel() - 1, state_len, x.shape[1])
    return torch.empty(shape, device=x.device, dtype=x.dtype).transpose(1, 2)
