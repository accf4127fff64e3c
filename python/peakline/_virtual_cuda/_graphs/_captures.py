"""Which streams are being captured, and into what."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._graphs._pools import PoolName, Pools

_DEFAULT_STREAM = (
    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to "
    "replay them on the default stream.)"
)


class Capture:
    """One that is underway: of one stream, and of those that wait for it."""

    def __init__(self, device: int, stream: int, pool: PoolName) -> None:
        self.device = device
        self.streams = {stream}
        self.pool = pool


class Captures:
    def __init__(self, engine: Engine, pools: Pools) -> None:
        self._engine = engine
        self._pools = pools
        self._underway: list[Capture] = []
        self._random: tuple[torch.Tensor, ...] = ()
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()

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
        self._pools.end(capture.device, capture.pool)

    def forget(self, graph: Any) -> None:
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
            capture.streams.add(stream)
            self._pools.add_stream(capture.device, capture.pool, stream)

    def _keep_random_state(self, graph: Any) -> None:
        """A graph reads the generator's seed and offset from two tensors, which all graphs share
        and the first one makes."""
        if not self._graphs:
            self._random = tuple(torch.empty(1, dtype=torch.int64, device="cuda") for _ in range(2))
        self._graphs.add(graph)
