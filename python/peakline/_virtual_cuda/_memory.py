"""Memory statistics, limits and snapshots, from the simulated allocator."""

from __future__ import annotations

from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes

_METRICS = ("current", "peak", "allocated", "freed")
_HOST_STATS = ("allocations", "allocated_bytes", "active_requests", "active_bytes")
_SETTERS = (
    "_accelerator_setAllocatorSettings",
    "_cuda_cudaCachingAllocator_set_allocator_settings",
)
_HOST_TIMES = ("host_alloc_time", "host_free_time")


_SETTINGS = (
    "the program changed the allocator's settings after its first allocation; the estimate keeps "
    "those from before"
)


def install(patches: Patches, engine: Engine, notes: Notes) -> None:
    def set_settings(settings: str) -> None:
        if not engine.configure(settings):
            notes.add(_SETTINGS)

    for name in _SETTERS:
        patches.set_where_present(torch._C, name, set_settings)
    history = _History()
    raw = _RawBlocks()
    patches.set_all(torch._C, _statistics(engine))
    patches.set_all(
        torch._C,
        {
            "_cuda_record_memory_history": history.record,
            "_cuda_record_memory_history_legacy": history.record_legacy,
            "_cuda_isHistoryEnabled": history.is_enabled,
            "_cuda_setMemoryMetadata": history.set_metadata,
            "_cuda_getMemoryMetadata": history.get_metadata,
            "_cuda_cudaCachingAllocator_raw_alloc": raw.allocate,
            "_cuda_cudaCachingAllocator_raw_delete": raw.free,
            "_cuda_cudaCachingAllocator_enable": lambda value: None,
            "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        },
    )
    patches.set(torch.cuda, "list_gpu_processes", list_gpu_processes)
    patches.set(torch.cuda.memory, "list_gpu_processes", list_gpu_processes)
    patches.set_where_present(
        torch.cuda, "device_memory_used", lambda device=None: _used(engine, device)
    )


def nested(flat: dict[str, int]) -> dict[str, Any]:
    """{"a.b.c": 1} as {"a": {"b": {"c": 1}}}: what torch's own binding gives."""
    out: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        place = out
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return out


def list_gpu_processes(device: Any = None) -> str:
    """No other process can be on a device that is not there."""
    index = torch.cuda._utils._get_device_index(device, optional=True)
    return f"GPU:{index}\nno processes are running"


def _used(engine: Engine, device: Any) -> int:
    free, total = engine.mem_get_info(torch.cuda._utils._get_device_index(device, optional=True))
    return total - free


def _statistics(engine: Engine) -> dict[str, Any]:
    return {
        "_cuda_memoryStats": lambda device: nested(engine.memory_stats(device)),
        "_cuda_resetPeakMemoryStats": engine.reset_peak,
        "_cuda_resetAccumulatedMemoryStats": engine.reset_accumulated,
        "_cuda_emptyCache": engine.empty_cache,
        "_cuda_setMemoryFraction": engine.set_memory_fraction,
        "_cuda_getMemoryFraction": engine.get_memory_fraction,
        "_cuda_memorySnapshot": lambda pool=None: engine.snapshot(),
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_hostMemoryStats": host_memory_stats,
        "_cuda_resetPeakHostMemoryStats": lambda: None,
        "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
    }


def host_memory_stats() -> dict[str, Any]:
    """Pinned memory is the host's own here: torch's pinned allocator is never used."""
    stats: dict[str, Any] = {name: dict.fromkeys(_METRICS, 0) for name in _HOST_STATS}
    for name in _HOST_TIMES:
        stats[name] = dict.fromkeys(("total", "max", "min", "count", "avg"), 0)
    stats["num_host_alloc"] = stats["num_host_free"] = 0
    return stats


class _History:
    """_record_memory_history: remembered, so that programs that use it go on.

    The engine's snapshot has the segments; traces are in peakline's own recording.
    """

    def __init__(self) -> None:
        self._enabled = False
        self._metadata = ""

    def record(self, enabled: str | None = "all", *args: Any, **kwargs: Any) -> None:
        self._enabled = enabled is not None

    def record_legacy(self, enabled: bool, *args: Any, **kwargs: Any) -> None:
        self._enabled = bool(enabled)

    def is_enabled(self) -> bool:
        return self._enabled

    def set_metadata(self, metadata: str) -> None:
        self._metadata = metadata

    def get_metadata(self) -> str:
        return self._metadata


class _RawBlocks:
    """caching_allocator_alloc: blocks that are known by their address alone."""

    def __init__(self) -> None:
        self._held: dict[int, torch.Tensor] = {}

    def allocate(self, size: int, stream: int = 0) -> int:
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._held[block.data_ptr()] = block
        return block.data_ptr()

    def free(self, address: int) -> None:
        if self._held.pop(address, None) is None:
            raise RuntimeError(f"no block was allocated at address {address:#x}")
