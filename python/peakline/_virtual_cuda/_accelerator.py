"""torch.accelerator: the virtual devices under torch's device-independent names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._memory import nested


def install(patches: Patches, engine: Engine) -> None:
    for name, function in _functions(engine).items():
        patches.set_where_present(torch._C, name, function)


def _functions(engine: Engine) -> dict[str, Callable[..., Any]]:
    def set_stream(stream: torch.Stream) -> None:
        torch.cuda._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)

    def accelerator(check: Any = None) -> torch.device:
        return torch.device("cuda")

    def get_stream(device: int) -> Any:
        return torch.cuda.current_stream(device)

    def exchange(device: int) -> int:
        return int(torch.cuda._exchange_device(device))

    return {
        "_accelerator_getAccelerator": accelerator,
        "_get_accelerator": accelerator,
        "_accelerator_getDeviceIndex": engine.current_device,
        "_accelerator_setDeviceIndex": lambda device: torch.cuda.set_device(device),
        "_accelerator_exchangeDevice": exchange,
        "_accelerator_maybeExchangeDevice": exchange,
        "_accelerator_getStream": get_stream,
        "_accelerator_setStream": set_stream,
        "_accelerator_synchronizeDevice": lambda device: torch.cuda.synchronize(device),
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getDeviceStats": lambda device: nested(engine.memory_stats(device)),
        "_accelerator_resetPeakStats": engine.reset_peak,
        "_accelerator_resetAccumulatedStats": engine.reset_accumulated,
        "_accelerator_emptyCache": engine.empty_cache,
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_getMemoryInfo": engine.mem_get_info,
        "_accelerator_hooks_device_count": engine.device_count,
        "_accelerator_hooks_get_current_device": engine.current_device,
        "_accelerator_hooks_set_current_device": lambda device: torch.cuda.set_device(device),
        "_accelerator_hooks_exchange_device": exchange,
        "_accelerator_hooks_maybe_exchange_device": exchange,
    }
