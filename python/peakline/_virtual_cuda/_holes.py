"""Places of a file that nobody wrote: torch.save leaves them for tensors that have no bytes."""

from __future__ import annotations

import os

_BLOCK = 1 << 20  # file systems leave out whole blocks, none of which is larger than this


def is_left_out(path: str | os.PathLike[str], begin: int, size: int) -> bool:
    """Whether the file has nothing there. False where the file system cannot tell."""
    with open(path, "rb") as file:
        try:
            data = os.lseek(file.fileno(), begin + _BLOCK, os.SEEK_DATA)
        except OSError:  # nothing from there on
            return os.fstat(file.fileno()).st_size >= begin + size
    return data >= begin + size - _BLOCK
