"""torch.cuda.get_device_properties of a virtual device."""

from __future__ import annotations

from typing import Any

# What torch offers beyond the profile's own facts; the values hold for every recent NVIDIA GPU.
_COMMON: dict[str, Any] = {
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "regs_per_multiprocessor": 65536,
    "warp_size": 32,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 101376,
    "shared_memory_per_multiprocessor": 102400,
    "L2_cache_size": 0,
    "gcnArchName": "",
    "pci_bus_id": 0,
    "pci_device_id": 0,
    "pci_domain_id": 0,
    "memory_clock_rate": 0,
    "memory_bus_width": 0,
    "clock_rate": 0,
    "uuid": "00000000-0000-0000-0000-000000000000",
}


class DeviceProperties:
    """The attributes of torch._C._CudaDeviceProperties that programs read."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int

    def __init__(self, facts: dict[str, Any]) -> None:
        self.__dict__.update(_COMMON)
        self.__dict__.update(facts)

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, "
            f"multi_processor_count={self.multi_processor_count}, virtual=True)"
        )
