"""Stores of a virtual run: this rank's own notes, and no socket.

The other ranks are taken to do what this one does. So a counter that everybody adds to is full as
soon as this rank has added, and nobody waits for a key. What only another rank knows is refused.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist
from torch._C import _distributed_c10d as native

from peakline._patches import Patches

_SCHEMES = ("env", "tcp", "file")
_MISSING = (
    "this rank asks the store for '{key}', which another rank would have put there, and a virtual "
    "run has no other"
)


class LoneStore(native.Store):
    """Camel case where torch's C++ asks for a method by that name."""

    def __init__(self, world_size: int = 1) -> None:
        super().__init__()
        _kept.append(self)
        self._world_size = world_size
        self._values: dict[str, bytes] = {}
        self._timeout = datetime.timedelta(minutes=5)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = _bytes(value)

    def get(self, key: str) -> bytes:
        if key not in self._values:
            raise RuntimeError(_MISSING.format(key=key))
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Everybody adds as much."""
        total = int(self._values.get(key, b"0")) + amount * self._world_size
        self._values[key] = str(total).encode()
        return total

    def append(self, key: str, value: Any) -> None:
        self._values[key] = self._values.get(key, b"") + _bytes(value)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        there = self._values.get(key)
        if there is None and _bytes(expected):
            return _bytes(expected)
        if there is None or there == _bytes(expected):
            self._values[key] = _bytes(desired)
        return self._values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        """Whoever was to set them has done so."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def list_keys(self) -> list[str]:
        return sorted(self._values)

    deleteKey, getNumKeys = delete_key, num_keys

    def clone(self) -> LoneStore:
        return self

    def has_extended_api(self) -> bool:
        return True

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> datetime.timedelta:
        return self._timeout


_kept: list[LoneStore] = []  # a store in C++ that stands on one of these does not keep it alive


class _LoneTCPStore(LoneStore):
    def __init__(
        self, host_name: str, port: int = 0, world_size: int | None = None, *args: Any, **kw: Any
    ) -> None:
        super().__init__(world_size or _number("WORLD_SIZE", 1))
        self.host, self.port = host_name, port or 29500
        self.libuvBackend = True


class _LoneFileStore(LoneStore):
    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__(world_size if world_size > 0 else _number("WORLD_SIZE", 1))
        self.path = file_name


def install(patches: Patches) -> None:
    module: Any = sys.modules["torch.distributed.rendezvous"]
    kinds = {"TCPStore": _LoneTCPStore, "FileStore": _LoneFileStore}
    for owner in (dist, dist.distributed_c10d, native, module):
        for name, kind in kinds.items():
            patches.set_where_present(owner, name, kind)
    patches.on_restore(_kept.clear)
    handlers = module._rendezvous_handlers
    patches.set(module, "_rendezvous_handlers", handlers | dict.fromkeys(_SCHEMES, _meet))


def _meet(url: str, **kwargs: Any) -> Iterator[tuple[LoneStore, int, int]]:
    """In place of finding the other ranks: where the URL does not say, torchrun's variables do."""
    given = {name: int(value[0]) for name, value in parse_qs(urlparse(url).query).items()}
    rank, world_size = rank_and_world_size()
    world_size = given.get("world_size", world_size)
    yield LoneStore(world_size), given.get("rank", rank), world_size


def rank_and_world_size() -> tuple[int, int]:
    """As torchrun tells its processes; a process that nobody started so is alone."""
    return _number("RANK", 0), _number("WORLD_SIZE", 1)


def _number(variable: str, usual: int) -> int:
    return int(os.environ.get(variable) or usual)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
