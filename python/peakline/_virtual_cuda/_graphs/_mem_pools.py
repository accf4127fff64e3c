"""torch.cuda.MemPool, and the functions that fill a pool."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._graphs._pools import PoolName, Pools

_OWN_ALLOCATOR = (
    "a MemPool with an allocator of its own is not available on a virtual GPU: nobody knows what "
    "it takes"
)


def install(patches: Patches, engine: Engine, pools: Pools) -> None:
    def from_this_thread(device: int, pool: PoolName) -> None:
        pools.begin(device, pool, from_="thread")

    def from_this_stream(device: int, pool: PoolName) -> None:
        stream = engine.current_stream(device)[0]
        pools.begin(device, pool, from_="streams", streams=[stream])

    def new_pool(cls: type, allocator: Any = None, *args: Any, **kwargs: Any) -> VirtualMemPool:
        if allocator is not None:
            raise RuntimeError(_OWN_ALLOCATOR)
        return VirtualMemPool(engine.current_device(), pools)

    functions = {
        "_cuda_beginAllocateToPool": lambda device, pool: pools.begin(device, pool),
        "_cuda_beginAllocateCurrentThreadToPool": from_this_thread,
        "_cuda_beginAllocateCurrentStreamToPool": from_this_stream,
        "_cuda_endAllocateToPool": pools.end,
        "_cuda_releasePool": pools.release,
    }
    for name, function in functions.items():
        patches.set(torch._C, name, function)
        patches.set_where_present(torch.cuda.memory, name, function)
    patches.set(torch.cuda.MemPool, "__new__", staticmethod(new_pool))


class VirtualMemPool:
    """What torch.cuda.MemPool() gives. Its free segments are returned when it ends."""

    allocator = None

    def __init__(self, device: int, pools: Pools) -> None:
        self.device = device
        self.id = pools.new()
        pools.retain(device, self.id)
        weakref.finalize(self, _end, pools, device, self.id)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.cuda.MemPool

    def use_count(self) -> int:
        return 1

    def snapshot(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        segments = torch.cuda.memory_snapshot()
        return [segment for segment in segments if segment["segment_pool_id"] == self.id]


def _end(pools: Pools, device: int, pool: PoolName) -> None:
    pools.release(device, pool)
    pools.empty(device, pool)
