"""What cudagraph trees (torch.compile's mode "reduce-overhead") ask of the allocator.

A recorded graph's results lie in its pool. They are given out as tensors over that memory, which do
not own it; before another path is recorded, the pool goes back to what it held at the path's end.
"""

from __future__ import annotations

from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._graphs._pools import PoolName, Pools, number


def install(patches: Patches, engine: Engine, pools: Pools) -> None:
    trees = _Trees(engine)
    patches.set_all(
        torch._C,
        {
            "_cuda_CUDAAllocator_AllocatorState": object,
            "_cuda_getCheckpointState": lambda device, pool: engine.checkpoint_pool(
                device, number(pool)
            ),
            "_cuda_setCheckpointPoolState": trees.set_checkpoint,
            "_cuda_checkPoolLiveAllocations": trees.holds_exactly,
            "_construct_storage_from_data_pointer": trees.storage_at,
            "_construct_CUDA_Tensor_From_Storage_And_Metadata": trees.tensor_over,
            "_free_And_Remove_DeleterFn": trees.free,
            "_has_Standard_Deleter": lambda storage: engine.owns_memory(_storage(storage)),
            "_set_storage_access_error_msg": lambda tensor, message: None,
            "_set_storage_data_ptr_access_error_msg": lambda storage, message: None,
            "_tensors_data_ptrs_at_indices_equal": _at_the_same_places,
            "_cuda_get_conv_benchmark_empty_cache": lambda: True,
            "_cudnn_set_conv_benchmark_empty_cache": lambda value: None,
            "_cuda_cudaCachingAllocator_raw_delete": trees.raw_delete(
                torch._C._cuda_cudaCachingAllocator_raw_delete
            ),
        },
    )


class _Trees:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def storage_at(self, address: int, device: Any, size: int) -> torch.UntypedStorage:
        index = torch.device(device).index or 0
        return self._engine.borrow_storage(address, index, size)

    def tensor_over(self, metadata: dict[str, Any], storage: torch.UntypedStorage) -> torch.Tensor:
        return self._engine.tensor_over(
            storage,
            metadata["dtype"],
            list(metadata["size"]),
            list(metadata["stride"]),
            metadata["storage_offset"],
        )

    def free(self, storage: int) -> None:
        found = _storage(storage)
        if self._engine.owns_memory(found):
            self._engine.set_owns_memory(found, False)
            self._engine.free_memory(found.data_ptr(), found.device.index)

    def raw_delete(self, otherwise: Any) -> Any:
        def raw_delete(address: int) -> None:
            try:
                otherwise(address)
            except RuntimeError:  # not allocated as such: memory of a recorded result
                self._engine.free_memory(address, self._engine.current_device())

        return raw_delete

    def set_checkpoint(
        self, device: int, checkpoint: Any, stale: list[int], to_own: list[int]
    ) -> None:
        freed, created = self._engine.restore_pool(device, checkpoint)
        for storage in map(_storage, stale):
            if storage.data_ptr() in freed:
                self._engine.set_owns_memory(storage, False)
        for storage in map(_storage, to_own):
            if storage.data_ptr() in created:
                self._engine.set_owns_memory(storage, True)

    def holds_exactly(self, device: int, pool: PoolName, addresses: set[int]) -> bool:
        held = {
            block["address"]
            for segment in self._engine.snapshot()["segments"]
            if segment["device"] == device and segment["segment_pool_id"] == pool
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        return held == set(addresses)


def _storage(pointer: int) -> torch.UntypedStorage:
    found: torch.UntypedStorage = torch.UntypedStorage._new_with_weak_ptr(pointer)
    return found


def _at_the_same_places(tensors: list[Any], addresses: list[int], indices: list[int]) -> bool:
    return all(tensors[i].data_ptr() == addresses[i] for i in indices)
