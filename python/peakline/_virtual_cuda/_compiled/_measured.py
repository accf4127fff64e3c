"""What a graph's compilation measured on the device, kept beside its code.

Code that is found in the cache was measured before, so nothing is measured now. A run without that
cache would measure: what it allocates for it is allocated again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from peakline._virtual_cuda._compiled._benchmarks import Benchmarks
from peakline._virtual_cuda._engine import Engine

# Bytes allocated under a number, or 0 where the block of that number is freed.
Step = tuple[int, int]


class Measured:
    def __init__(self, engine: Engine, benchmarks: Benchmarks, folder: Path) -> None:
        self._engine = engine
        self._benchmarks = benchmarks
        self._folder = folder

    @contextlib.contextmanager
    def around(self, graph: Any, inputs: Any) -> Iterator[None]:
        """Around the compilation of one graph."""
        before = self._benchmarks.count
        self._engine.record_history(True)
        try:
            yield
            steps = self._steps()
        finally:
            self._engine.record_history(False)
        path = self._folder / f"{_key(graph, inputs)}.json"
        if self._benchmarks.count > before:
            _write(path, steps)
        elif path.is_file():
            self._benchmarks.repeated()
            _allocate_again(json.loads(path.read_text()))

    def _steps(self) -> list[Step]:
        """What was allocated and freed, in order. What stayed (a library's workspace) is freed
        with the last of it when it is repeated."""
        traces = self._engine.snapshot()["device_traces"]
        events = traces[self._engine.current_device()]
        steps: list[Step] = []
        alive: dict[int, int] = {}
        for event in events:
            if event["action"] == "alloc":
                alive[event["addr"]] = len(steps)
                steps.append((len(steps), event["size"]))
            elif event["action"] == "free_completed" and event["addr"] in alive:
                steps.append((alive.pop(event["addr"]), 0))
        return steps


def _allocate_again(steps: list[Step]) -> None:
    alive: dict[int, torch.Tensor] = {}
    for number, size in steps:
        if size:
            alive[number] = torch.empty(size, dtype=torch.uint8, device="cuda")
        else:
            alive.pop(number, None)


def _key(graph: Any, inputs: Any) -> str:
    code = getattr(graph, "code", str(graph))
    shapes = [
        (tuple(map(str, item.shape)), str(item.dtype), tuple(map(str, item.stride())))
        if isinstance(item, torch.Tensor)
        else str(item)
        for item in inputs
    ]
    return hashlib.sha256(repr((code, shapes)).encode()).hexdigest()


def _write(path: Path, steps: list[Step]) -> None:
    with contextlib.suppress(OSError):  # a cache that cannot be written is none
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(steps))
