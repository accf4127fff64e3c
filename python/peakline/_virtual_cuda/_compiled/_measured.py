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
from torch.utils._pytree import tree_leaves

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
        self._engine.begin_alloc_log(self._engine.current_device())
        try:
            yield
        finally:
            logged = self._engine.end_alloc_log()
        path = self._folder / f"{_key(graph, inputs)}.json"
        if self._benchmarks.count > before:
            _write(path, _numbered(logged))
        elif path.is_file():
            self._benchmarks.repeated()
            _allocate_again(json.loads(path.read_text()))


def _numbered(logged: list[tuple[int, int]]) -> list[Step]:
    """Addresses mean nothing to the next run. What stayed (a library's workspace) is freed with the
    last of it when it is repeated."""
    steps: list[Step] = []
    alive: dict[int, int] = {}
    for address, size in logged:
        if size:
            alive[address] = len(steps)
            steps.append((len(steps), size))
        elif address in alive:
            steps.append((alive.pop(address), 0))
    return steps


def _allocate_again(steps: list[Step]) -> None:
    alive: dict[int, torch.Tensor] = {}
    for number, size in steps:
        if size:
            alive[number] = torch.empty(size, dtype=torch.uint8, device="cuda")
        else:
            alive.pop(number, None)


def _key(graph: Any, inputs: Any) -> str:
    """Compiled autograd gives lists among the inputs."""
    code = getattr(graph, "code", str(graph))
    shapes = [
        (tuple(map(str, item.shape)), str(item.dtype), tuple(map(str, item.stride())))
        if isinstance(item, torch.Tensor)
        else str(item)
        for item in tree_leaves(inputs)
    ]
    return hashlib.sha256(repr((code, shapes)).encode()).hexdigest()


def _write(path: Path, steps: list[Step]) -> None:
    with contextlib.suppress(OSError):  # a cache that cannot be written is none
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(steps))
