"""Which streams are being captured, and into what."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from peakline import _C
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._graphs._pools import PoolName, Pools

_DEFAULT_STREAM = (
    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to "
    "replay them on the default stream.)"
)


_numbers = itertools.count(1)


class Capture:
    """One that is underway: of one stream, and of those that wait for it. What it captures takes
    its time when it is replayed."""

    def __init__(self, device: int, stream: int, pool: PoolName) -> None:
        self.device = device
        self.streams: set[int] = set()
        self.pool = pool
        self.stepper = ""  # who made a training step in it
        self._number = next(_numbers)
        self.add(stream)

    def add(self, stream: int) -> None:
        self.streams.add(stream)
        _C.vgpu.clock_capture(self._number, self.device, stream)

    def end(self) -> None:
        _C.vgpu.clock_end_capture(self._number)

    def replay(self) -> None:
        _C.vgpu.clock_replay(self._number, self.device)

    def forget(self) -> None:
        _C.vgpu.clock_forget(self._number)


class Captures:
    def __init__(self, engine: Engine, pools: Pools) -> None:
        self._engine = engine
        self._pools = pools
        self._underway: list[Capture] = []
        self._random: tuple[torch.Tensor, ...] = ()
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self.on_step: Callable[[str], None] = lambda maker: None  # a replay has made one

    @property
    def pools_made(self) -> int:
        return self._pools.made

    def begin(self, graph: Any, pool: PoolName | None) -> Capture:
        device = self._engine.current_device()
        stream = self._engine.current_stream(device)[0]
        if stream == 0:
            raise RuntimeError(_DEFAULT_STREAM)
        self._keep_random_state(graph)
        capture = Capture(device, stream, pool or self._pools.new())
        self._pools.begin(device, capture.pool, from_="streams", streams=[stream], for_graph=True)
        self._underway.append(capture)
        return capture

    def end(self, capture: Capture) -> None:
        self._underway.remove(capture)
        capture.end()
        self._pools.end(capture.device, capture.pool)

    def replay(self, capture: Capture) -> None:
        capture.replay()
        if capture.stepper:
            self.on_step(capture.stepper)

    def stepped(self, maker: str) -> None:
        """The program has made a step, which is part of a graph where one is captured."""
        if self.is_current():
            self._underway[-1].stepper = maker

    def forget(self, graph: Any, capture: Capture | None) -> None:
        if capture is not None:
            capture.forget()
        self._graphs.discard(graph)
        if not self._graphs:
            self._random = ()

    def of(self, device: int, stream: int) -> Capture | None:
        for capture in self._underway:
            if capture.device == device and stream in capture.streams:
                return capture
        return None

    def is_current(self) -> bool:
        if not self._underway:
            return False
        device = self._engine.current_device()
        return self.of(device, self._engine.current_stream(device)[0]) is not None

    def join(self, capture: Capture | None, stream: int) -> None:
        """`stream` waits for what is captured, so its work is captured, too."""
        if capture in self._underway and capture is not None and stream not in capture.streams:
            capture.add(stream)
            self._pools.add_stream(capture.device, capture.pool, stream)

    def _keep_random_state(self, graph: Any) -> None:
        """A graph reads the generator's seed and offset from two tensors, which all graphs share
        and the first one makes."""
        if not self._graphs:
            self._random = tuple(torch.empty(1, dtype=torch.int64, device="cuda") for _ in range(2))
        self._graphs.add(graph)
