"""Folders for the time of one process. What a killed process left is deleted by the next one.

A folder's name says which process made it, and that process holds a lock on it while it lives: it
may live where its number means nothing to others, as in a container that shares the folder of
temporary files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator

_NAME = re.compile(r"peakline-[a-z]+-(\d+)-\w+")
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_held: dict[str, int] = {}  # the folders of this process, and their locks


def held() -> list[str]:
    """The scratch folders of this process."""
    return list(_held)


def make(kind: str) -> str:
    folder = os.path.realpath(tempfile.mkdtemp(prefix=f"peakline-{kind}-{os.getpid()}-"))
    with contextlib.suppress(OSError):  # a file system without locks
        _held[folder] = os.open(folder, _LOOK)
        fcntl.flock(_held[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder


def remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock = _held.pop(folder, None)
    if lock is not None:
        with contextlib.suppress(OSError):  # a script may close what it finds open
            os.close(lock)


@contextlib.contextmanager
def folder(kind: str) -> Iterator[str]:
    made = make(kind)
    try:
        yield made
    finally:
        remove(made)


def sweep() -> None:
    """Deletes what processes of this user left that live no more. No link is followed."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            made_by = _NAME.fullmatch(entry.name)
            if made_by and not _lives(int(made_by[1])):
                with contextlib.suppress(OSError):
                    _delete_unless_held(entry.path)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _delete_unless_held(path: str) -> None:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    looking = os.open(path, _LOOK)
    try:
        fcntl.flock(looking, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)  # which takes links inside for what they are
    finally:
        os.close(looking)
