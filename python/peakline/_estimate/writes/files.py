"""Python's own ways to files, through an Overlay."""

from __future__ import annotations

import builtins
import bz2
import functools
import io
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from typing import Any

from peakline._estimate.writes.overlay import Overlay
from peakline._patches import Patches

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Functions of os that only look at a path; of these, that look at a link itself; and those that
# change what is known of a file.
_LOOKS = ["stat", "lstat", "access", "readlink", "chdir", "statvfs", "listxattr", "getxattr"]
_AT_LINKS = ("lstat", "readlink")
_CHANGES = ["utime", "chmod", "chown", "setxattr", "removexattr"]
# Modules that keep Python's open under a name of their own.
_CAPTURED = ((tarfile, "bltn_open"), (bz2, "_builtin_open"))


def install(patches: Patches, overlay: Overlay) -> None:
    def through(owner: Any, name: str, make: Callable[[Overlay, Any], Any]) -> None:
        real = getattr(owner, name)
        patches.set(owner, name, _unless_busy(overlay, real, make(overlay, real)))

    through(io, "open", _open)
    for owner, name in ((builtins, "open"), *_CAPTURED):
        patches.set(owner, name, io.open)
    through(os, "open", _os_open)
    for name in _LOOKS:
        through(os, name, _looking)
    for name in _CHANGES:
        through(os, name, _changing)
    for name in ("remove", "unlink", "rmdir"):
        through(os, name, _removing)
    for name in ("rename", "replace"):
        through(os, name, _renaming)
    through(os, "symlink", _symlinking)
    through(os, "link", _linking)
    through(os, "mkdir", _mkdir)
    through(os, "truncate", _truncate)
    through(os, "listdir", _listdir)
    through(os, "scandir", _scandir)
    through(shutil, "rmtree", _rmtree)
    through(sqlite3, "connect", _connect)


def _unless_busy(overlay: Overlay, real: Any, instead: Any) -> Any:
    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (real if overlay.busy else instead)(*args, **kwargs)

    return call


def _open(overlay: Overlay, real: Any) -> Any:
    def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        # An opener opens what it likes, by os.open: tempfile gives it the folder.
        if isinstance(file, int) or not isinstance(mode, str) or kwargs.get("opener"):
            return real(file, mode, *args, **kwargs)
        if set(mode) & set("wax+"):
            if "x" in mode and os.path.lexists(file):
                return real(file, mode, *args, **kwargs)  # which refuses
            return real(overlay.place_to_write(file, "w" not in mode), mode, *args, **kwargs)
        return real(overlay.place(file), mode, *args, **kwargs)

    return open


def _os_open(overlay: Overlay, real: Any) -> Any:
    def open(path: Any, flags: int, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
        if not flags & _WRITES or flags & os.O_DIRECTORY:
            place = overlay.place(path, dir_fd)
        else:
            there = os.path.exists(path) if dir_fd is None else True
            if flags & os.O_EXCL and not there:
                overlay.made_temporary(path, dir_fd)
            place = overlay.place_to_write(path, not flags & os.O_TRUNC, dir_fd)
            if place is not path and there:
                flags |= os.O_CREAT  # as a file that is there, although its copy is not yet
        return real(place, flags, *args, dir_fd=dir_fd if place is path else None, **kwargs)

    return open


def _looking(overlay: Overlay, real: Any) -> Any:
    def look(path: Any, *args: Any, **kwargs: Any) -> Any:
        if overlay.is_idle:
            return real(path, *args, **kwargs)
        try:
            follows = kwargs.get("follow_symlinks", real.__name__ not in _AT_LINKS)
            place = overlay.place(path, kwargs.get("dir_fd"), follows)
        except FileNotFoundError:
            if real.__name__ == "access":
                return False
            raise
        return real(place, *args, **kwargs)

    return look


def _changing(overlay: Overlay, real: Any) -> Any:
    look = _looking(overlay, real)

    def change(path: Any, *args: Any, **kwargs: Any) -> Any:
        if overlay.is_old(path, kwargs.get("dir_fd")):
            return None  # it stays as it is
        return look(path, *args, **kwargs)

    return change


def _removing(overlay: Overlay, real: Any) -> Any:
    def remove(path: Any, *, dir_fd: int | None = None) -> None:
        overlay.place(path, dir_fd, follows=False)  # says so when it is gone
        if not overlay.remove(path, dir_fd):
            real(path, dir_fd=dir_fd)

    return remove


def _renaming(overlay: Overlay, real: Any) -> Any:
    def rename(src: Any, dst: Any, **kwargs: Any) -> None:
        if kwargs or not overlay.rename(src, dst):
            real(src, dst, **kwargs)

    return rename


def _mkdir(overlay: Overlay, real: Any) -> Any:
    def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
        if not overlay.make_folder(path):
            real(path, *args, **kwargs)

    return mkdir


def _symlinking(overlay: Overlay, real: Any) -> Any:
    def symlink(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
        place = overlay.place_to_write(dst) if not os.path.lexists(dst) else dst
        if place is not dst:
            src = overlay.place(os.path.join(os.path.dirname(os.path.abspath(dst)), src))
        real(src, place, *args, **kwargs)

    return symlink


def _linking(overlay: Overlay, real: Any) -> Any:
    def link(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
        source = _absolute(src, kwargs.get("src_dir_fd"))
        target = _absolute(dst, kwargs.get("dst_dir_fd"))
        if os.path.lexists(target):
            real(src, dst, *args, **kwargs)  # which refuses
        elif not overlay.link(source, target):
            real(src, dst, *args, **kwargs)

    return link


def _absolute(path: Any, dir_fd: int | None) -> Any:
    if dir_fd is None or os.path.isabs(path):
        return path
    return os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), os.fsdecode(path))


def _truncate(overlay: Overlay, real: Any) -> Any:
    def truncate(path: Any, length: int) -> None:
        real(overlay.place_to_write(path, keeps=True), length)

    return truncate


def _listdir(overlay: Overlay, real: Callable[..., list[Any]]) -> Any:
    def listdir(path: Any = None) -> list[Any]:
        if overlay.is_idle or isinstance(path, int):
            return real(path)
        names = real(path) if os.path.isdir(path or ".") else []
        return overlay.names_in(path, names)

    return listdir


def _scandir(overlay: Overlay, real: Any) -> Any:
    def scandir(path: Any = None) -> Any:
        if overlay.is_idle or isinstance(path, int):
            return real(path)
        with real(path) as entries:
            there = {entry.name: entry for entry in entries}
        folder = "." if path is None else path
        names = overlay.names_in(path, list(there))
        return _Entries([there.get(name) or _Entry(folder, name, overlay) for name in names])

    return scandir


class _Entries:
    """What os.scandir gives."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class _Entry:
    """An os.DirEntry of something that lies in the scratch folder."""

    def __init__(self, folder: Any, name: Any, overlay: Overlay) -> None:
        self.name = name
        self.path = os.path.join(os.fspath(folder), name)

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path)

    def inode(self) -> int:
        return self.stat().st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path)

    def is_symlink(self) -> bool:
        return False

    def is_junction(self) -> bool:
        return False


def _rmtree(overlay: Overlay, real: Any) -> Any:
    def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
        if not overlay.remove_tree(path):
            with overlay.plainly():
                real(path, *args, **kwargs)

    return rmtree


def _connect(overlay: Overlay, real: Any) -> Any:
    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        if not str(database).startswith("file:") and str(database) not in (":memory:", ""):
            database = overlay.place_to_write(database, keeps=True)
        return real(database, *args, **kwargs)

    return connect
