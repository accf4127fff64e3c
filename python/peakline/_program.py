"""Where the C++ program `peakline` is. Imports no torch."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path


def find() -> str | None:
    """The program beside this Python, else the one on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "peakline"
    return str(beside) if beside.exists() else shutil.which("peakline")
