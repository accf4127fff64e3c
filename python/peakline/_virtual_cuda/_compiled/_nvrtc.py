"""CUDA sources that a program compiles itself (torch.cuda._compile_kernel): never launched."""

from __future__ import annotations

from typing import Any

import torch

from peakline._patches import Patches

_MOST_THREADS = 1024


def install(patches: Patches) -> None:
    patches.set_where_present(torch.cuda, "_compile_kernel", compile_kernel)


def compile_kernel(kernel_source: str, kernel_name: str, *args: Any, **kwargs: Any) -> Kernel:
    if not kernel_source:
        raise ValueError("Kernel source string cannot be empty")
    if kernel_name not in kernel_source:
        raise RuntimeError(f"CUDA error: the source has no kernel {kernel_name}")
    return Kernel(kernel_name)


class Kernel:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        args: list[Any] | None = None,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        threads = block[0] * block[1] * block[2]
        if threads > _MOST_THREADS:
            raise RuntimeError(
                f"CUDA error: invalid configuration argument: {self.name} with {threads} threads"
            )

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        pass
