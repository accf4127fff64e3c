"""Shapes of the kernels of SyncBatchNorm, for which torch has no shape functions.

They exist on GPUs only. Numbers for a channel are float32 where the pictures are half precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from peakline._patches import Patches

_HALVES = (torch.float16, torch.bfloat16)


def install(patches: Patches) -> None:
    missing = [name for name in _SHAPES if not _has_shapes(name)]
    if not missing:
        return
    library: Any = torch.library.Library("aten", "IMPL")
    patches.on_restore(library._destroy)
    for name in missing:
        library.impl(name, _SHAPES[name], "Meta")


def _has_shapes(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(f"aten::{name}", "Meta")


def _for_channels(like: Tensor, channels: int) -> Tensor:
    dtype = torch.float32 if like.dtype in _HALVES else like.dtype
    return like.new_empty(channels, dtype=dtype)


def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    channels = input.size(1)
    return _for_channels(input, channels), _for_channels(input, channels)


def _gathered(input: Tensor, mean: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    channels = mean.size(1)
    return _for_channels(mean, channels), _for_channels(mean, channels)


def _normalized(input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


def _reduced(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, ...]:
    sums = [torch.empty_like(mean) if input_g else None for _ in range(2)]
    like = mean if weight is None else weight
    grads = [like.new_empty(input.size(1)) if wanted else None for wanted in (weight_g, bias_g)]
    return (*sums, *grads)


def _input_gradient(grad_out: Tensor, input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


_SHAPES = {
    "batch_norm_stats": _stats,
    "batch_norm_gather_stats_with_counts": _gathered,
    "batch_norm_elemt": _normalized,
    "batch_norm_backward_reduce": _reduced,
    "batch_norm_backward_elemt": _input_gradient,
}
