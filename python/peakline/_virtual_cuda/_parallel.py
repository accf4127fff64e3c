"""Copies between devices that torch.nn.DataParallel makes through C++ of CUDA builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from peakline._patches import Patches


def install(patches: Patches) -> None:
    patches.set_all(torch._C, _functions())


def _functions() -> dict[str, Callable[..., Any]]:
    return {
        "_broadcast": broadcast,
        "_broadcast_coalesced": broadcast_coalesced,
        "_broadcast_out": copy_to_all,
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": gather_out,
    }


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor if _is_on(tensor, device) else _to(tensor, device) for device in devices]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    return [[*part] for part in zip(*(broadcast(t, devices) for t in tensors), strict=True)]


def copy_to_all(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [target.copy_(tensor) for target in out]


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Any,
) -> list[torch.Tensor]:
    chunks = (
        tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    )
    placed = zip(chunks, devices, strict=False)
    return [chunk if _is_on(chunk, device) else _to(chunk, device) for chunk, device in placed]


def scatter_out(
    tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Any
) -> list[torch.Tensor]:
    chunks = tensor.split([target.size(dim) for target in out], dim)
    return [target.copy_(chunk) for target, chunk in zip(out, chunks, strict=True)]


def gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    device = "cpu" if destination == -1 else f"cuda:{destination or 0}"
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))


def _is_on(tensor: torch.Tensor, device: int) -> bool:
    return tensor.is_cuda and tensor.get_device() == device


def _to(tensor: torch.Tensor, device: int) -> torch.Tensor:
    return tensor.to(f"cuda:{device}", non_blocking=True)
