"""torch.cuda.jiterator: kernels over elements that a program writes in C++."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from peakline._patches import Patches


def install(patches: Patches) -> None:
    patches.set(torch._C, "_cuda_jiterator_compile_and_launch_kernel", launch)


def launch(
    code: str,
    name: str,
    return_by_ref: bool,
    outputs: int,
    tensors: Sequence[torch.Tensor],
    scalars: dict[str, Any],
) -> Any:
    """Nothing is compiled: one loop over elements, all of one type, needs its results alone."""
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    like = next((tensor for tensor in tensors if tensor.shape == shape), tensors[0].expand(shape))
    made = [torch.empty_like(like, dtype=dtype) for _ in range(outputs)]
    return made[0] if outputs == 1 else tuple(made)
