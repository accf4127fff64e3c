"""Where cuDNN is: it plans convolutions for GPUs that are not there, if it is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

_PLANNER = Path(__file__).parent / "_planner" / "peakline-planner"
_LIBRARY = "libcudnn.so.9"


def planner_files() -> dict[str, str]:
    """What `_C.vgpu.enter` needs to ask cuDNN; empty when there is none.

    $PEAKLINE_CUDNN names the folder of libcudnn.so.9, or says "off". Otherwise it is looked for in
    the packages that pip installs it as: nvidia-cudnn-cu13, nvidia-cudnn-cu12.
    """
    folder = _folder()
    if folder is None or not _PLANNER.exists():
        return {}
    return {"program": str(_PLANNER), "cudnn": str(folder)}


def _folder() -> Path | None:
    named = os.environ.get("PEAKLINE_CUDNN", "")
    if named == "off":
        return None
    for folder in [Path(named)] if named else _package_folders():
        if (folder / _LIBRARY).exists():
            return folder
    return None


def _package_folders() -> list[Path]:
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return []
    places = spec.submodule_search_locations if spec else None
    return [Path(place) / "lib" for place in places or []]
