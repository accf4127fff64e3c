"""Where Inductor and Triton keep what they wrote for a virtual GPU: a folder of peakline's own.

What they wrote for a real GPU is never found from here, nor the other way round.
"""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from peakline import _scratch
from peakline._cache_folder import cache_folder
from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine

_VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}


def install(patches: Patches, engine: Engine) -> Path:
    """The folder."""
    folder = _usable(_folder(engine))
    if folder is None:
        made = _scratch.make("inductor")
        patches.on_restore(lambda: _scratch.remove(made))
        folder = Path(made)
    for name, below in _VARIABLES.items():
        patches.set(os.environ, name, str(folder / below))
    return folder


def keep_headers(patches: Patches, codecache: Any) -> None:
    """Headers of C++ that Inductor compiles once for all: where it keeps them is settled when it is
    imported, and does not ask for the folder above."""
    headers = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "precompiled_headers"
    patches.set_where_present(codecache, "_HEADER_DIR", str(headers))
    patches.set_where_present(codecache, "_HEADER_LOCK_DIR", str(headers / "locks"))


def _folder(engine: Engine) -> Path:
    words = [
        f"torch-{torch.__version__}",
        f"triton-{_version('triton')}",
        f"peakline-{_version('peakline')}",
        engine.properties(0)["name"],
    ]
    name = "_".join(re.sub(r"[^\w.+-]", "-", str(word)) for word in words)
    return cache_folder() / "inductor" / name


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _usable(folder: Path) -> Path | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
