"""The few calls of the CUDA runtime and of NVTX that programs make through torch."""

from __future__ import annotations

import enum
import itertools
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine


class CudaError(enum.IntEnum):
    success = 0


class Cudart:
    """torch.cuda.cudart()"""

    cudaError = CudaError

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        return self._engine.mem_get_info(device)

    def cudaGetErrorString(self, error: int) -> str:
        return "no error" if int(error) == 0 else f"unknown error {int(error)}"

    def cudaProfilerStart(self) -> CudaError:
        return CudaError.success

    def cudaProfilerStop(self) -> CudaError:
        return CudaError.success

    def cudaProfilerInitialize(self, *args: Any) -> CudaError:
        return CudaError.success

    def cudaHostRegister(self, address: int, size: int, flags: int) -> CudaError:
        return CudaError.success

    def cudaHostUnregister(self, address: int) -> CudaError:
        return CudaError.success

    def cudaStreamCreate(self, address: int) -> CudaError:
        return CudaError.success

    def cudaStreamDestroy(self, address: int) -> CudaError:
        return CudaError.success


class Nvtx:
    """Ranges nest and are forgotten: nobody profiles a GPU that is not there."""

    def __init__(self) -> None:
        self._depth = 0
        self._ranges = itertools.count(1)

    def rangePushA(self, message: str) -> int:
        self._depth += 1
        return self._depth - 1

    def rangePop(self) -> int:
        self._depth -= 1
        return self._depth

    def rangeStartA(self, message: str) -> int:
        return next(self._ranges)

    def rangeEnd(self, handle: int) -> None:
        pass

    def markA(self, message: str) -> None:
        pass

    def deviceRangeStart(self, message: str, stream: int = 0) -> int:
        return next(self._ranges)

    def deviceRangeEnd(self, handle: object, stream: int = 0) -> None:
        pass


def install(patches: Patches, engine: Engine) -> None:
    cudart = Cudart(engine)
    patches.set(torch.cuda, "_cudart", cudart)
    patches.set(torch._C, "_cudart", cudart)
    patches.set(torch.cuda.nvtx, "_nvtx", Nvtx())
    # Between steps of replayed graphs, of which there are none.
    patches.set(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
