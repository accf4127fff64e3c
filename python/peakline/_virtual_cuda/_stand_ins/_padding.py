"""flash_attn's `bert_padding`: rows that count, gathered into one sequence and put back.

Rows are gathered and scattered by their numbers, which sorts nothing and makes no copy: torch's
own indexing would do both in its backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from peakline._virtual_cuda._stand_ins._package import applied


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(indices)
        ctx.rows = len(rows)
        flat = rows.flatten(1)
        found = torch.gather(flat, 0, _for_each_column(indices, flat))
        return found.reshape(-1, *rows.shape[1:])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        flat = grads[0].flatten(1)
        grad = torch.zeros(ctx.rows, flat.shape[1], dtype=flat.dtype, device=flat.device)
        grad.scatter_(0, _for_each_column(indices, flat), flat)
        return grad.reshape(ctx.rows, *grads[0].shape[1:]), None


class _PutBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, indices: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(indices)
        out = torch.zeros(count, *rows.shape[1:], dtype=rows.dtype, device=rows.device)
        out[indices] = rows
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        return grads[0][indices], None, None


def _for_each_column(indices: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    return indices.unsqueeze(1).expand(-1, flat.shape[1])


def index_first_axis(rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = applied(_Gathered, rows, indices)
    return found


def index_put_first_axis(rows: torch.Tensor, indices: torch.Tensor, count: int) -> torch.Tensor:
    out: torch.Tensor = applied(_PutBack, rows, indices, count)
    return out


def unpad_input(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor,
    unused_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    """The rows that count, where they were, and where each sequence begins."""
    mask = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    longest = int(lengths.max().item())
    begins = F.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, begins, longest, used


def pad_input(
    hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int
) -> torch.Tensor:
    rows = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return rows.view(batch, seqlen, *rows.shape[1:])
