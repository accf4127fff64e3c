"""Streams and events. torch's generic ones do the work, through the engine's device guard."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from peakline import _C
from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._graphs import Captures
from peakline._virtual_cuda._refused import refusal

_IPC = "events of a virtual GPU cannot be shared with other processes"
# least, greatest: what torch gives on NVIDIA GPUs.
PRIORITY_RANGE = (0, -3)


def install(patches: Patches, engine: Engine, captures: Captures) -> None:
    def new_stream(
        cls: type, device: Any = None, priority: int = 0, **kwargs: Any
    ) -> VirtualStream:
        if "stream_ptr" in kwargs:
            index = engine.current_device()
            return VirtualStream(kwargs["stream_ptr"], index, 0)
        if "stream_id" in kwargs:
            return VirtualStream(kwargs["stream_id"], kwargs["device_index"], priority)
        index = torch.cuda._utils._get_device_index(device, optional=True)
        if index < 0:
            index = engine.current_device()
        least, greatest = PRIORITY_RANGE
        priority = max(greatest, min(least, priority))
        return VirtualStream(engine.new_stream(index, priority)[0], index, priority)

    def new_event(cls: type, *args: Any, **kwargs: Any) -> VirtualEvent:
        event = VirtualEvent(*args, **kwargs)
        event._captures = captures
        return event

    patches.set(torch.cuda.Stream, "__new__", new_stream)
    patches.set(torch.cuda.Event, "__new__", new_event)
    patches.set(torch.cuda.Event, "from_ipc_handle", classmethod(refusal(_IPC)))
    patches.set(torch.cuda.Stream, "priority_range", staticmethod(lambda: PRIORITY_RANGE))
    patches.set_all(torch._C, _functions(engine))


def _functions(engine: Engine) -> dict[str, Any]:
    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        if engine.current_device() != device_index:
            engine.exchange_device(device_index)
        engine.set_stream(stream_id, device_index)

    return {
        "_cuda_getCurrentStream": engine.current_stream,
        "_cuda_getDefaultStream": engine.default_stream,
        "_cuda_getCurrentRawStream": lambda device: engine.current_stream(device)[0],
        "_cuda_getStreamFromExternal": lambda address, device: (address, device, _CUDA),
        "_cuda_setStream": set_stream,
        "_cuda_synchronize": lambda: _synchronize(engine),
    }


_CUDA = 1  # c10::DeviceType::CUDA


def _synchronize(engine: Engine) -> None:
    engine.synchronize(engine.current_device())


class VirtualStream(torch.Stream):
    """What torch.cuda.Stream(...) gives: an instance of it as far as isinstance can tell.

    torch's own class cannot be made here: it asks the driver, or is a dummy without CUDA.
    """

    _priority: int
    _entered: list[Any]

    def __new__(cls, stream_id: int, device_index: int, priority: int) -> VirtualStream:
        make: Any = torch.Stream.__new__
        stream: VirtualStream = make(
            cls, stream_id=stream_id, device_index=device_index, device_type=_CUDA
        )
        stream._priority = priority
        stream._entered = []
        return stream

    def __init__(self, *args: Any) -> None:
        pass

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.cuda.Stream

    @property
    def cuda_stream(self) -> int:
        return self.stream_id

    @property
    def priority(self) -> int:
        return self._priority

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.cuda_stream)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return PRIORITY_RANGE

    def is_capturing(self) -> bool:
        return torch.cuda.current_stream() == self and torch.cuda.is_current_stream_capturing()

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: Any = None) -> Any:
        if event is None:
            event = torch.cuda.Event()
        event.record(self)
        return event

    def __enter__(self) -> VirtualStream:
        context = torch.cuda.stream(self)  # type: ignore[arg-type]
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, torch.Stream)
            and self.stream_id == other.stream_id
            and self.device == other.device
        )

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class VirtualEvent(torch.Event):
    """What torch.cuda.Event(...) gives. Nothing computes, so everything recorded is done at once;
    `elapsed_time` is the time between the two by the GPU's clock."""

    _timing: bool
    _happens_us: float | None
    _captures: Captures | None = None
    _captured: Any = None  # the capture that it was recorded in

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> VirtualEvent:
        make: Any = torch.Event.__new__
        event: VirtualEvent = make(cls, device="cuda", enable_timing=enable_timing)
        event._timing = enable_timing
        event._happens_us = None
        return event

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.cuda.Event

    @property
    def cuda_event(self) -> int:
        return 0 if self._happens_us is None else id(self)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_event)

    def record(self, stream: Any = None) -> None:
        stream = torch.cuda.current_stream() if stream is None else stream
        super().record(stream)
        if self._captures is not None:
            self._captured = self._captures.of(stream.device.index, stream.stream_id)
        self._happens_us = _C.vgpu.event_us(stream.stream_id, stream.device_index)

    def wait(self, stream: Any = None) -> None:
        stream = torch.cuda.current_stream() if stream is None else stream
        super().wait(stream)
        if self._captures is not None:
            self._captures.join(self._captured, stream.stream_id)

    def elapsed_time(self, end_event: Any) -> float:
        if not (self._timing and end_event._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._happens_us is None or end_event._happens_us is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(end_event._happens_us - self._happens_us) / 1e3

    def ipc_handle(self) -> bytes:
        raise RuntimeError(_IPC)

    def __repr__(self) -> str:
        address = self.cuda_event
        return f"<torch.cuda.Event {address:#x}>" if address else "<torch.cuda.Event uninitialized>"
