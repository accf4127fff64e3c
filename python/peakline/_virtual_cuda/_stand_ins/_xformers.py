"""xformers: memory_efficient_attention, the masks that it takes, and unbind.

In half precision it takes FlashAttention 2's kernels, otherwise those of CUTLASS that torch has as
well. Read at 0.0.33: FlashAttention 3 refuses GPUs newer than 8.0 there.
"""

from __future__ import annotations

from typing import Any

import torch

from peakline._virtual_cuda._stand_ins._flash_kernels import Forward, backward_scratch
from peakline._virtual_cuda._stand_ins._package import Package, Region, applied
from peakline._virtual_cuda._stand_ins._xformers_masks import (
    MASKS,
    BlockDiagonalCausalMask,
    BlockDiagonalMask,
    LowerTriangularMask,
    bias_of,
    cutlass_kind,
)

VERSION = "0.0.33"
_HALF = (torch.float16, torch.bfloat16)
_LARGEST_FLASH_HEAD = 256


def package(region: Region) -> Package:
    attention = {
        "memory_efficient_attention": region.around(memory_efficient_attention),
        "memory_efficient_attention_forward": region.around(memory_efficient_attention),
        # What `op=` may name: the kernels are chosen by the inputs all the same.
        "MemoryEfficientAttentionFlashAttentionOp": None,
        "MemoryEfficientAttentionCutlassOp": None,
    }
    ops = {**attention, "unbind": unbind, "AttentionMask": MASKS["AttentionBias"], **MASKS}
    return Package(
        "xformers",
        VERSION,
        {
            "xformers": {"__version__": VERSION},
            "xformers.ops": ops,
            "xformers.ops.fmha": {**attention, **MASKS},
            "xformers.ops.fmha.attn_bias": MASKS,
        },
        for_programs_only=True,
    )


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """(batch, rows, heads, head size); without heads where there are three dimensions, with groups
    of heads where there are five."""
    tensors = (query, key, value)
    if query.dim() == 3:
        q, k, v = (tensor.unsqueeze(2) for tensor in tensors)
        return memory_efficient_attention(q, k, v, attn_bias, p, scale).squeeze(2)
    if query.dim() == 5:
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise NotImplementedError(
                "No operator found for `memory_efficient_attention_backward`: xformers has "
                "groups of heads (five dimensions) in forward alone"
            )
        q, k, v = (_folded(tensor) for tensor in tensors)
        out = memory_efficient_attention(q, k, v, attn_bias, p, scale)
        return out.view(*query.shape[:-1], out.shape[-1])
    kernel: type[torch.autograd.Function] = (
        _Flash if _flash_takes(query, key, value, attn_bias) else _Cutlass
    )
    needs = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    result: torch.Tensor = applied(kernel, query, key, value, attn_bias, p, scale, needs)
    return result


def _folded(tensor: torch.Tensor) -> torch.Tensor:
    """One head of each group where they are the same."""
    return tensor[:, :, :, 0] if tensor.stride(3) == 0 else tensor.flatten(2, 3)


def _flash_takes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any) -> bool:
    head = q.shape[-1]
    if q.dtype not in _HALF or head % 8 or head > _LARGEST_FLASH_HEAD or head != v.shape[-1]:
        return False
    if bias_of(mask) is not None:
        return False
    if isinstance(mask, LowerTriangularMask):  # from the top left
        return q.shape[1] == k.shape[1]
    if isinstance(mask, BlockDiagonalCausalMask):
        return mask.q_seqinfo.seqstart_py == mask.k_seqinfo.seqstart_py
    return True


class _Flash(torch.autograd.Function):
    """Keeps its arguments, its result and a number a row; the random state for dropout alone."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Any,
        p: float,
        scale: float | None,
        needs_gradient: bool,
    ) -> torch.Tensor:
        sequences = len(mask.q_seqinfo.lengths) if isinstance(mask, BlockDiagonalMask) else 0
        rows, keys = (tensor.flatten(0, 1) if sequences else tensor for tensor in (q, k))
        done = Forward(rows, keys, p)
        ctx.save_for_backward(q, k, v, done.out, done.logsumexp)
        ctx.mask, ctx.sequences = mask, sequences
        ctx.random_state = done.random_state if p else None
        together = q.shape[-1] + k.shape[-1] + v.shape[-1]
        ctx.in_one = q.shape[0] == k.shape[0] and q.stride(-2) == together
        return done.out.view(q.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        q, k, v, *_ = ctx.saved_tensors
        grad = grads[0].contiguous()
        if ctx.in_one:  # what came from one tensor has its gradients in one
            shape = (*q.shape[:-2], 3, *q.shape[-2:])
            results = torch.empty(shape, dtype=q.dtype, device=q.device).unbind(-3)
        else:
            results = tuple(torch.empty_like(tensor) for tensor in (q, k, v))
        rows, keys = (tensor.flatten(0, 1) if ctx.sequences else tensor for tensor in (q, k))
        scratch = backward_scratch(rows, keys, ctx.sequences, False)
        del scratch, grad
        return (*results, None, None, None, None)


class _Cutlass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Any,
        p: float,
        scale: float | None,
        needs_gradient: bool,
    ) -> torch.Tensor:
        forward = torch.ops.aten._efficient_attention_forward
        ctx.packed = _packed(q, k, mask)
        out, logsumexp, *random_state, _, _ = forward(
            q,
            k,
            v,
            bias_of(mask),
            *ctx.packed,
            p,
            cutlass_kind(mask),
            needs_gradient,
            scale=scale,
        )
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.mask, ctx.p, ctx.scale = mask, p, scale
        ctx.random_state = random_state if p else [q.new_empty(0)] * 2
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        q, k, v, out, logsumexp = ctx.saved_tensors
        bias = bias_of(ctx.mask)
        begins_q, begins_k, longest_q, longest_k = ctx.packed
        backward = torch.ops.aten._efficient_attention_backward
        dq, dk, dv, db = backward(
            grads[0],
            q,
            k,
            v,
            bias,
            out,
            begins_q,
            begins_k,
            longest_q,
            longest_k,
            logsumexp,
            ctx.p,
            *ctx.random_state,
            cutlass_kind(ctx.mask),
            bias is not None and bias.requires_grad,
            scale=ctx.scale,
        )
        wanted = isinstance(ctx.mask, torch.Tensor) and ctx.mask.requires_grad
        return dq, dk, dv, db if wanted else None, None, None, None


def _packed(q: torch.Tensor, k: torch.Tensor, mask: Any) -> tuple[Any, Any, int, int]:
    """Where packed sequences begin, and the longest."""
    if not isinstance(mask, BlockDiagonalMask):
        return None, None, q.shape[1], k.shape[1]
    queries, keys = mask.q_seqinfo, mask.k_seqinfo
    return queries.seqstart, keys.seqstart, queries.max_seqlen, keys.max_seqlen


def unbind(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    parts: tuple[torch.Tensor, ...] = applied(_Unbind, x, dim)
    return parts


class _Unbind(torch.autograd.Function):
    """Gradients that are parts of one tensor are that tensor: nothing is copied."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
        ctx.dim = dim % x.dim()
        return x.unbind(dim)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        first, *others = grads
        step = int(others[0].storage_offset() - first.storage_offset()) if others else 0
        if not others or not all(
            _follows(first, other, step * number) for number, other in enumerate(others, 1)
        ):
            return torch.stack(grads, dim=ctx.dim), None
        shape, stride = list(first.shape), list(first.stride())
        shape.insert(ctx.dim, len(grads))
        stride.insert(ctx.dim, step)
        return first.as_strided(shape, stride), None


def _follows(first: torch.Tensor, other: torch.Tensor, distance: int) -> bool:
    return (
        other.shape == first.shape
        and other.stride() == first.stride()
        and other.untyped_storage()._cdata == first.untyped_storage()._cdata
        and other.storage_offset() == first.storage_offset() + distance
    )
