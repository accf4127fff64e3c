"""flash_attn 2: attention functions, and the helpers that Hugging Face asks for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from peakline._virtual_cuda._refused import refusal
from peakline._virtual_cuda._stand_ins._flash_kernels import Forward, backward_scratch
from peakline._virtual_cuda._stand_ins._package import Package, Region, applied
from peakline._virtual_cuda._stand_ins._padding import (
    index_first_axis,
    index_put_first_axis,
    pad_input,
    unpad_input,
)

VERSION = "2.8.3"


def package(region: Region) -> Package:
    given: dict[str, Callable[..., Any]] = {
        "flash_attn_func": flash_attn_func,
        "flash_attn_qkvpacked_func": flash_attn_qkvpacked_func,
        "flash_attn_kvpacked_func": flash_attn_kvpacked_func,
        "flash_attn_varlen_func": flash_attn_varlen_func,
        "flash_attn_varlen_qkvpacked_func": flash_attn_varlen_qkvpacked_func,
        "flash_attn_varlen_kvpacked_func": flash_attn_varlen_kvpacked_func,
        "flash_attn_with_kvcache": flash_attn_with_kvcache,
    }
    functions = {name: region.around(_one_result(function)) for name, function in given.items()}
    return Package(
        "flash_attn",
        VERSION,
        {
            "flash_attn": {"__version__": VERSION, **functions},
            "flash_attn.flash_attn_interface": functions | _inner_functions(),
            "flash_attn.bert_padding": {
                "unpad_input": region.around(unpad_input),
                "pad_input": region.around(pad_input),
                "index_first_axis": region.around(index_first_axis),
                "index_put_first_axis": region.around(index_put_first_axis),
            },
            "flash_attn.layers": {},
            "flash_attn.layers.rotary": {"apply_rotary_emb": region.around(apply_rotary_emb)},
        },
    )


def _inner_functions() -> dict[str, Callable[..., Any]]:
    """Libraries import them beside the others, for attention over several GPUs."""
    kinds = ("_flash_attn", "_flash_attn_varlen", "_wrapped_flash_attn")
    names = [f"{kind}_{direction}" for kind in kinds for direction in ("forward", "backward")]
    return {name: refusal(f"peakline's stand-in of flash_attn has no {name}") for name in names}


def _one_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is given only for tests of the real one is refused, not left out in silence."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in ("return_attn_probs", "return_softmax_lse"):
            if kwargs.get(name):
                raise NotImplementedError(
                    f"peakline's stand-in of flash_attn has no {name}; leave it out, or install "
                    "flash_attn"
                )
        return function(*args, **kwargs)

    return call


class Attention(torch.autograd.Function):
    """`sequences`: how many are packed; 0: batched. Keeps what FlashAttention keeps."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sequences: int,
        dropout: float,
        deterministic: bool,
    ) -> torch.Tensor:
        done = Forward(q, k, dropout)
        ctx.save_for_backward(q, k, v, done.out, done.logsumexp, done.random_state)
        ctx.sequences, ctx.deterministic = sequences, deterministic
        return done.out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        q, k, v, *_ = ctx.saved_tensors
        grad = grads[0].contiguous()
        results = [torch.empty_like(tensor) for tensor in (q, k, v)]
        scratch = backward_scratch(q, k, ctx.sequences, ctx.deterministic)
        del scratch, grad
        return (*results, None, None, None)


class PackedAttention(torch.autograd.Function):
    """Of keys and values in one tensor, and of queries where there are none apart: the gradient is
    one tensor, too."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: torch.Tensor | None,
        packed: torch.Tensor,
        sequences: int,
        dropout: float,
        deterministic: bool,
    ) -> torch.Tensor:
        q, k, _ = _unpacked(queries, packed)
        done = Forward(q, k, dropout)
        ctx.save_for_backward(queries, packed, done.out, done.logsumexp, done.random_state)
        ctx.sequences, ctx.deterministic = sequences, deterministic
        return done.out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        queries, packed, *_ = ctx.saved_tensors
        grad = grads[0].contiguous()
        first = None if queries is None else torch.empty_like(queries)
        second = torch.empty_like(packed)
        q, k, _ = _unpacked(queries, packed)
        scratch = backward_scratch(q, k, ctx.sequences, ctx.deterministic)
        del scratch, grad
        return first, second, None, None, None


def _unpacked(queries: torch.Tensor | None, packed: torch.Tensor) -> Any:
    parts = packed.unbind(-3)
    return parts if queries is None else (queries, *parts)


def attend_packed(
    queries: torch.Tensor | None,
    packed: torch.Tensor,
    sequences: int,
    dropout: float,
    deterministic: bool,
) -> torch.Tensor:
    _check(*_unpacked(queries, packed))
    head = packed.shape[-1]
    if head % 8:
        packed = F.pad(packed, [0, 8 - head % 8])
        queries = None if queries is None else F.pad(queries, [0, 8 - head % 8])
    out: torch.Tensor = applied(PackedAttention, queries, packed, sequences, dropout, deterministic)
    return out[..., :head] if head % 8 else out


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sequences: int = 0,
    dropout: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    _check(q, k, v)
    head = q.shape[-1]
    if head % 8:  # rows of whole 16 bytes
        q, k, v = (F.pad(tensor, [0, 8 - head % 8]) for tensor in (q, k, v))
    out: torch.Tensor = applied(Attention, q, k, v, sequences, dropout, deterministic)
    return out[..., :head] if head % 8 else out


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    if not q.is_cuda:
        raise RuntimeError("Input tensor must be on CUDA device")
    if q.shape[-1] > 256:
        raise RuntimeError("FlashAttention forward only supports head dimension at most 256")
    if q.shape[-2] % k.shape[-2]:
        raise RuntimeError("Number of heads in key/value must divide number of heads in query")


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> torch.Tensor:
    return attend(q, k, v, 0, dropout_p, deterministic)


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    *args: Any,
    deterministic: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    return attend_packed(None, qkv, 0, dropout_p, deterministic)


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    *args: Any,
    deterministic: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    return attend_packed(q, kv, 0, dropout_p, deterministic)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    *args: Any,
    deterministic: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    return attend(q, k, v, cu_seqlens_q.numel() - 1, dropout_p, deterministic)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    *args: Any,
    deterministic: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    return attend_packed(None, qkv, cu_seqlens.numel() - 1, dropout_p, deterministic)


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    *args: Any,
    deterministic: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    return attend_packed(q, kv, cu_seqlens_q.numel() - 1, dropout_p, deterministic)


def flash_attn_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    return Forward(q, k_cache, 0.0).out


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, inplace: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.inplace = inplace
        if inplace:
            ctx.mark_dirty(x)
            return x
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        grad = grads[0] if ctx.inplace else torch.empty_like(grads[0])
        return grad, None, None, None


def apply_rotary_emb(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    out: torch.Tensor = applied(_Rotary, x, cos, sin, inplace)
    return out
