"""Where peakline keeps what the next estimate can use again. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "peakline"
