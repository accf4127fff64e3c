"""Tries of earlier searches, kept in the cache folder while what they depend on is the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peakline._cache_folder import cache_folder

_ENVIRONMENT = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PEAKLINE_CUDNN", "PYTHONPATH")
_MOST = 500  # searches that are kept


def folder() -> Path:
    return cache_folder() / "fit"


class Remembered:
    """The tries of one search: the same script, in the same words, on the same versions."""

    def __init__(self, words: Iterable[str], versions: Iterable[str]) -> None:
        told = [os.getcwd(), *words, *versions, *(os.environ.get(n, "") for n in _ENVIRONMENT)]
        name = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
        self._file = folder() / f"{name}.json"
        self._kept: dict[str, Any] = {"files": {}, "tries": {}}
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self._file.read_text())
            if all(_stamp(path) == stamp for path, stamp in kept["files"].items()):
                self._kept = kept

    def get(self, values: dict[str, int]) -> dict[str, Any] | None:
        return self.get_text(_key(values))

    def get_text(self, key: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._kept["tries"].get(key)
        return found

    def keep(self, values: dict[str, int], made: dict[str, Any], files: Iterable[str]) -> None:
        self.keep_text(_key(values), made, files)

    def keep_text(self, key: str, made: dict[str, Any], files: Iterable[str]) -> None:
        """`files`: the sources that this try came of; when one changes all is forgotten."""
        self._kept["tries"][key] = made
        self._kept["files"].update({path: _stamp(path) for path in files})
        with contextlib.suppress(OSError):  # a cache that cannot be written is no cache
            self._file.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._file.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps(self._kept))
            scratch.replace(self._file)
            _trim(self._file.parent)


def _key(values: dict[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(values.items()))


def _stamp(path: str) -> list[int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]


def _trim(where: Path) -> None:
    files = sorted(where.glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[_MOST:]:
        file.unlink(missing_ok=True)
