"""xformers' masks: what a program builds and asks of them. A mask of packed sequences holds where
each of them begins, on the GPU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch


class AttentionBias:
    pass


class LowerTriangularMask(AttentionBias):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def add_bias(self, bias: torch.Tensor) -> LowerTriangularMaskWithTensorBias:
        return LowerTriangularMaskWithTensorBias(bias)

    def make_local_attention(self, window_size: int) -> AttentionBias:
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    def __init__(self, bias: torch.Tensor) -> None:
        self.bias = bias


class LowerTriangularFromBottomRightMask(AttentionBias):
    def make_local_attention(self, window_size: int) -> AttentionBias:
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


class LowerTriangularFromBottomRightLocalAttentionMask(LowerTriangularFromBottomRightMask):
    def __init__(self, _window_size: int) -> None:
        pass


class LocalAttentionFromBottomRightMask(AttentionBias):
    def __init__(self, window_left: int, window_right: int) -> None:
        self.window_left, self.window_right = window_left, window_right


class Lengths:
    """Of packed sequences."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = [int(length) for length in lengths]
        self.seqstart_py = [0, *itertools.accumulate(self.lengths)]
        self.seqstart = torch.tensor(self.seqstart_py, dtype=torch.int32, device="cuda")
        self.max_seqlen = max(self.lengths)

    def split(self, tensor: torch.Tensor, batches: list[int] | None) -> list[torch.Tensor]:
        parts = iter(tensor.split(self.lengths, dim=1))
        if batches is None:
            return list(parts)
        return [torch.cat(list(itertools.islice(parts, batch))) for batch in batches]


class BlockDiagonalMask(AttentionBias):
    def __init__(self, q_seqinfo: Lengths, k_seqinfo: Lengths, *args: Any, **kwargs: Any) -> None:
        self.q_seqinfo, self.k_seqinfo = q_seqinfo, k_seqinfo
        self._batch_sizes: list[int] | None = kwargs.get("_batch_sizes")

    @classmethod
    def from_seqlens(
        cls,
        q_seqlen: Sequence[int],
        kv_seqlen: Sequence[int] | None = None,
        *,
        device: Any = None,
    ) -> BlockDiagonalMask:
        queries = Lengths(q_seqlen)
        keys = queries if kv_seqlen in (None, q_seqlen) else Lengths(kv_seqlen or ())
        return cls(queries, keys)

    @classmethod
    def from_tensor_list(
        cls, tensors: Sequence[torch.Tensor]
    ) -> tuple[BlockDiagonalMask, torch.Tensor]:
        mask = cls.from_seqlens([length for x in tensors for length in [x.shape[1]] * x.shape[0]])
        mask._batch_sizes = [tensor.shape[0] for tensor in tensors]
        rows = [tensor.reshape(1, -1, *tensor.shape[2:]) for tensor in tensors]
        return mask, torch.cat(rows, dim=1)

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return self.q_seqinfo.split(tensor, self._batch_sizes)

    def split_queries(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return self.q_seqinfo.split(tensor, self._batch_sizes)

    def split_kv(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return self.k_seqinfo.split(tensor, self._batch_sizes)

    def make_causal(self) -> BlockDiagonalMask:
        return self._as(BlockDiagonalCausalMask)

    def make_causal_from_bottomright(self) -> BlockDiagonalMask:
        return self._as(BlockDiagonalCausalFromBottomRightMask)

    def make_local_attention(self, window_size: int) -> BlockDiagonalMask:
        return self._as(BlockDiagonalCausalLocalAttentionMask)

    def make_local_attention_from_bottomright(self, window_size: int) -> BlockDiagonalMask:
        return self._as(BlockDiagonalCausalLocalAttentionFromBottomRightMask)

    def _as(self, kind: type[BlockDiagonalMask]) -> BlockDiagonalMask:
        return kind(self.q_seqinfo, self.k_seqinfo, _batch_sizes=self._batch_sizes)


class BlockDiagonalCausalMask(BlockDiagonalMask):
    pass


class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalMask):
    pass


class BlockDiagonalCausalLocalAttentionMask(BlockDiagonalCausalMask):
    pass


class BlockDiagonalCausalLocalAttentionFromBottomRightMask(BlockDiagonalCausalMask):
    pass


MASKS: dict[str, type[AttentionBias]] = {
    kind.__name__: kind
    for kind in (
        AttentionBias,
        LowerTriangularMask,
        LowerTriangularMaskWithTensorBias,
        LowerTriangularFromBottomRightMask,
        LowerTriangularFromBottomRightLocalAttentionMask,
        LocalAttentionFromBottomRightMask,
        BlockDiagonalMask,
        BlockDiagonalCausalMask,
        BlockDiagonalCausalFromBottomRightMask,
        BlockDiagonalCausalLocalAttentionMask,
        BlockDiagonalCausalLocalAttentionFromBottomRightMask,
    )
}


def bias_of(mask: Any) -> torch.Tensor | None:
    if isinstance(mask, LowerTriangularMaskWithTensorBias):
        return mask.bias
    return mask if isinstance(mask, torch.Tensor) else None


def cutlass_kind(mask: Any) -> int:
    """Which triangle CUTLASS's kernel leaves: all, from the top left, from the bottom right."""
    if isinstance(mask, LowerTriangularMask):
        return 1
    if isinstance(mask, LowerTriangularFromBottomRightMask):
        return 2
    from_bottom = (
        BlockDiagonalCausalFromBottomRightMask,
        BlockDiagonalCausalLocalAttentionFromBottomRightMask,
    )
    if isinstance(mask, from_bottom):
        return 2
    return 1 if isinstance(mask, BlockDiagonalCausalMask) else 0
