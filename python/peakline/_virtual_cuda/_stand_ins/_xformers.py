"""xformers: memory_efficient_attention and the masks that it takes.

In half precision it takes FlashAttention's kernels, otherwise CUTLASS's, which torch has as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from peakline._virtual_cuda._stand_ins._flash_attn import attend
from peakline._virtual_cuda._stand_ins._package import Package, Region

VERSION = "0.0.33"


def package(region: Region) -> Package:
    masks = {
        "AttentionBias": AttentionBias,
        "LowerTriangularMask": LowerTriangularMask,
        "BlockDiagonalMask": BlockDiagonalMask,
        "BlockDiagonalCausalMask": BlockDiagonalCausalMask,
    }
    attention = {"memory_efficient_attention": region.around(memory_efficient_attention)}
    return Package(
        "xformers",
        VERSION,
        {
            "xformers": {"__version__": VERSION},
            "xformers.ops": {**attention, **masks},
            "xformers.ops.fmha": {**attention, **masks},
            "xformers.ops.fmha.attn_bias": masks,
        },
        for_programs_only=True,
    )


class AttentionBias:
    sequences = 0  # how many are packed into one row of the batch; 0: none


class LowerTriangularMask(AttentionBias):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class BlockDiagonalMask(AttentionBias):
    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)
        self.sequences = len(self.lengths)

    @classmethod
    def from_seqlens(
        cls, q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None, **kwargs: Any
    ) -> BlockDiagonalMask:
        return cls(q_seqlen)

    def make_causal(self) -> BlockDiagonalMask:
        return BlockDiagonalCausalMask(self.lengths)

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return list(tensor.split(self.lengths, dim=1))


class BlockDiagonalCausalMask(BlockDiagonalMask):
    pass


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """(batch, rows, heads, head size); without heads where there are three dimensions."""
    if query.dim() == 3:
        q, k, v = (tensor.unsqueeze(2) for tensor in (query, key, value))
        return memory_efficient_attention(q, k, v, attn_bias, p, scale).squeeze(2)
    is_tensor = isinstance(attn_bias, torch.Tensor)
    if query.dtype in (torch.float16, torch.bfloat16) and not is_tensor:
        return _by_flash(query, key, value, attn_bias, p)
    bias = attn_bias if is_tensor else None
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    out = F.scaled_dot_product_attention(q, k, v, bias, p, scale=scale)
    return out.transpose(1, 2)


def _by_flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any, p: float
) -> torch.Tensor:
    sequences = getattr(bias, "sequences", 0)
    if sequences:  # one row of the batch, packed
        q, k, v = (tensor.flatten(0, 1) for tensor in (query, key, value))
        rows = attend(q, k, v, sequences, p)
        return rows.view(*query.shape[:2], *rows.shape[1:])
    return attend(query, key, value, 0, p)
