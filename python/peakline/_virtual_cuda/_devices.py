"""Which devices there are, and which is the current one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._properties import DeviceProperties


def install(patches: Patches, engine: Engine) -> None:
    count = engine.device_count()
    properties = [DeviceProperties(engine.properties(device)) for device in range(count)]
    sync_mode = _Setting(0)
    patches.set_all(torch._C, _functions(engine, properties))
    patches.set(torch._C, "_cuda_set_sync_debug_mode", sync_mode.set)
    patches.set(torch._C, "_cuda_get_sync_debug_mode", sync_mode.get)

    cuda = torch.cuda
    patches.set(cuda, "_initialized", True)
    patches.set(cuda, "_is_in_bad_fork", lambda: False)
    patches.set(cuda, "_cached_device_count", count)
    # Two functions: Dynamo knows each by itself.
    patches.set(cuda, "_exchange_device", _exchange(engine))
    patches.set(cuda, "_maybe_exchange_device", _exchange(engine))
    patches.set(cuda, "_get_device_properties", properties.__getitem__)
    # Answers from NVML would be about another machine.
    for name in ("utilization", "temperature", "power_draw", "clock_rate", "memory_usage"):
        patches.set_where_present(cuda, name, lambda device=None: 0)


def _functions(engine: Engine, properties: list[DeviceProperties]) -> dict[str, Any]:
    return {
        "_cuda_init": lambda: None,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getDeviceCount": engine.device_count,
        "_cuda_getDevice": engine.current_device,
        "_cuda_setDevice": lambda device: _set_device(engine, device),
        "_cuda_exchangeDevice": _exchange(engine),
        "_cuda_maybeExchangeDevice": _exchange(engine),
        "_cuda_hasPrimaryContext": lambda device: True,
        "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer,
        "_cuda_getArchFlags": lambda: _arch_flags(properties),
        "_cuda_sleep": lambda cycles: None,
        "_cuda_ipc_collect": lambda: None,
    }


def _arch_flags(properties: list[DeviceProperties]) -> str:
    targets = {f"sm_{device.major}{device.minor}" for device in properties}
    return " ".join(sorted(targets))


def _set_device(engine: Engine, device: int) -> None:
    _check(engine, device)
    engine.exchange_device(device)


def _exchange(engine: Engine) -> Callable[[int], int]:
    def exchange(device: int) -> int:
        if device < 0:
            return -1
        _check(engine, device)
        return engine.exchange_device(device)

    return exchange


def _check(engine: Engine, device: int) -> None:
    count = engine.device_count()
    if not 0 <= device < count:
        raise torch.AcceleratorError(
            f"CUDA error: invalid device ordinal: cuda:{device} of {count} virtual device(s)"
        )


class _Setting:
    """A value that is only remembered."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def set(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value
