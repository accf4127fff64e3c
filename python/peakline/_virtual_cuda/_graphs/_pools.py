"""Private pools, under the names that torch gives them."""

from __future__ import annotations

from collections.abc import Sequence

from peakline._virtual_cuda._engine import Engine

PoolName = tuple[int, int]


class Pools:
    """torch names a pool by two numbers, the allocator by one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last = 0
        self._open = True

    def close(self) -> None:
        """The session is over. Graphs and pools that outlive it have nothing to give back."""
        self._open = False

    def new(self) -> PoolName:
        self._last += 1
        return 0, self._last

    @property
    def made(self) -> int:
        return self._last

    def begin(
        self,
        device: int,
        pool: PoolName,
        *,
        from_: str = "everywhere",
        streams: Sequence[int] = (),
        for_graph: bool = False,
    ) -> None:
        self._engine.begin_pool(device, number(pool), from_, list(streams), for_graph)

    def end(self, device: int, pool: PoolName) -> None:
        self._engine.end_pool(device, number(pool))

    def add_stream(self, device: int, pool: PoolName, stream: int) -> None:
        self._engine.add_pool_stream(device, number(pool), stream)

    def retain(self, device: int, pool: PoolName) -> None:
        self._engine.retain_pool(device, number(pool))

    def release(self, device: int, pool: PoolName) -> None:
        if self._open:
            self._engine.release_pool(device, number(pool))

    def empty(self, device: int, pool: PoolName) -> None:
        if self._open:
            self._engine.empty_pool(device, number(pool))


def number(pool: PoolName) -> int:
    """All names are made here, so the second number says it all."""
    return int(pool[1])
