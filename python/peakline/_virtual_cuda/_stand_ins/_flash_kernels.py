"""What FlashAttention 2's forward and backward kernels take, batched and of packed sequences."""

from __future__ import annotations

import math

import torch

_BLOCK_ROWS = 128  # sequences are rounded up to it
_SPLIT_ROWS = 64


def rounded(size: int, to: int) -> int:
    return -(-size // to) * to


def rounded_head(size: int) -> int:
    return rounded(size, 32 if size <= 128 else 64)


def floats(*sizes: int, like: torch.Tensor) -> torch.Tensor:
    return torch.empty(sizes, dtype=torch.float32, device=like.device)


class Forward:
    """Batched: (batch, rows, heads, head size). Packed sequences: (all rows, heads, head size)."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, dropout: float) -> None:
        self.out = torch.empty_like(q)
        if q.dim() == 4:
            batch, rows, heads, size = q.shape
            self.logsumexp = floats(batch, heads, rows, like=q)
            splits = 1 if dropout else _splits(*_work(q, k), k.shape[1], size)
            if splits > 1:  # the parts of each row, until they are joined
                parts = floats(splits, batch, heads, rows, like=q)
                outs = floats(splits, batch, heads, rows, rounded_head(size), like=q)
                del parts, outs
        else:
            rows, heads, _ = q.shape
            self.logsumexp = floats(heads, rows, like=q)
        self.random_state = torch.empty(2, dtype=torch.int64, device=q.device)


def _work(q: torch.Tensor, k: torch.Tensor) -> tuple[int, int]:
    """Heads of the whole batch, and rows of each. A single row's heads that share keys count as
    rows."""
    batch, rows, heads, _ = q.shape
    kv_heads = k.shape[2]
    if rows == 1 and heads > kv_heads:
        return batch * kv_heads, heads // kv_heads
    return batch * heads, rows


def backward_scratch(
    q: torch.Tensor, k: torch.Tensor, sequences: int, deterministic: bool
) -> list[torch.Tensor]:
    """Alive while the gradients are computed. `sequences`: how many are packed; 0: batched."""
    size = rounded_head(q.shape[-1])
    heads = q.shape[-2]
    if q.dim() == 4:
        batch, rows = q.shape[0], rounded(q.shape[1], _BLOCK_ROWS)
        scratch = [floats(batch, heads, rows, like=q)]
        parts = _gradient_parts(batch * heads) if deterministic else 1
        scratch.append(floats(parts * batch, rows, heads, size, like=q))
    else:
        rows = q.shape[0] + _BLOCK_ROWS * sequences
        scratch = [floats(heads, rows, like=q)]
        parts = _gradient_parts(sequences * heads) if deterministic else 1
        scratch.append(floats(parts * rows, heads, size, like=q))
    if k.shape[-2] != heads:  # a gradient for every head of the queries, summed up at the end
        shape = (*k.shape[:-2], heads, k.shape[-1])
        scratch += [torch.empty(shape, dtype=k.dtype, device=k.device) for _ in range(2)]
    return scratch


def _processors() -> int:
    return int(torch.cuda.get_device_properties().multi_processor_count)


def _gradient_parts(work: int) -> int:
    return -(-_processors() // work)


def _splits(batch_heads: int, rows: int, keys: int, head: int) -> int:
    """In how many parts the keys are taken, so that all processors have something to do."""
    keys_at_once = 256 if head <= 64 else 128 if head <= 128 else 64
    key_blocks = -(-keys // keys_at_once)
    work = batch_heads * -(-rows // _SPLIT_ROWS)
    places = _processors() * 2
    if work >= 0.8 * places:
        return 1
    useful = [
        splits
        for splits in range(1, min(128, places, key_blocks) + 1)
        if splits == 1 or -(-key_blocks // splits) != -(-key_blocks // (splits - 1))
    ]
    filled = {splits: _filled(work * splits / places) for splits in useful}
    best = max(filled.values())
    return next(splits for splits in useful if filled[splits] >= 0.85 * best)


def _filled(waves: float) -> float:
    return waves / math.ceil(waves)
