"""Hashes of torch's and Triton's sources, remembered from one estimate to the next.

Inductor finds cached code by a key that has both in it. To read all these files takes longer than
the rest of a small program's second estimate; to see that none of them changed takes milliseconds.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peakline._imports import Action
from peakline._patches import Patches
from peakline._virtual_cuda._compiled._cache import keep_headers

_NO_SOURCES = ("include", "lib", "__pycache__")


def actions(patches: Patches, folder: Path) -> dict[str, Action]:
    def of_torch(module: Any) -> None:
        if "torch_key" in vars(module):
            package = Path(module.__file__).parents[1]
            patches.set(module, "torch_key", _remembered(module.torch_key, package, folder))

    def in_codecache(module: Any) -> None:
        of_torch(module)
        keep_headers(patches, module)

    def of_triton(module: Any) -> None:
        if module.HAS_TRITON:
            package = Path(module.triton.__file__).parent
            patches.set(module, "triton_key", _remembered(module.triton_key, package, folder))

    return {
        "torch._inductor.codecache": in_codecache,
        "torch._inductor.async_compile": of_torch,  # may have it by name
        "torch._inductor.runtime.triton_compat": of_triton,
    }


def _remembered(
    compute: Callable[[], str | bytes], package: Path, folder: Path
) -> Callable[[], str | bytes]:
    """`compute`, whose answer stays the same while the package's files do."""

    @functools.wraps(compute)
    @functools.cache
    def key() -> str | bytes:
        path = folder / f"sources_of_{package.name}.json"
        state = state_of(package)
        known = _read(path)
        if known.get("state") == state:
            return bytes.fromhex(known["bytes"]) if "bytes" in known else str(known["text"])
        found = compute()
        value = {"bytes": found.hex()} if isinstance(found, bytes) else {"text": found}
        _write(path, {"state": state, **value})
        return found

    return key


def state_of(package: Path) -> str:
    """Of where its sources and libraries lie, how large they are and when they were written."""
    digest = hashlib.sha256()
    for entry in _sources(str(package)):
        facts = entry.stat()
        digest.update(f"{entry.path} {facts.st_mtime_ns} {facts.st_size}\n".encode())
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            if entry.name not in _NO_SOURCES:
                yield from _sources(entry.path)
        elif entry.name.endswith((".py", ".so")):
            yield entry


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, value: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # a cache that cannot be written is none
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_text(json.dumps(value))
        part.replace(path)
