"""Files that peakline writes because somebody named them."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """As `Path.write_text`, but never through a symbolic link, which somebody may have put there to
    have another file overwritten. Those in /dev are the system's own."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    follow = 0 if str(path).startswith("/dev/") else os.O_NOFOLLOW
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | follow
    try:
        file = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and Path(path).is_symlink():
            error.strerror = "it is a symbolic link, and nothing is written through one"
        raise
    with os.fdopen(file, "wb") as out:
        out.write(content)
