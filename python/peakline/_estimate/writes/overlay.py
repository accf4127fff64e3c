"""Which path of the script's lies where: in its own place, or in a scratch folder."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from peakline import _scratch
from peakline._cache_folder import cache_folder

# Weights and states: what they hold is made up, so that they go to the scratch folder even where
# nothing is in their place. Event files are a logger's.
_SAVES = {".bin", ".ckpt", ".distcp", ".gguf", ".h5", ".hdf5", ".npy", ".npz", ".onnx", ".params"}
_SAVES |= {".pkl", ".pickle", ".pt", ".pt2", ".ptl", ".pth", ".safetensors", ".tar", ".weights"}
_NAMES = ("events.out.tfevents", ".metadata")  # how they begin; the second is a sharded save's

_LINKS = 40  # as many as Linux follows

Method = TypeVar("Method", bound=Callable[..., Any])


def _plainly(method: Method) -> Method:
    """Paths are what they are while this runs."""

    @functools.wraps(method)
    def run(self: Overlay, *args: Any, **kwargs: Any) -> Any:
        with self.plainly():
            return method(self, *args, **kwargs)

    return run  # type: ignore[return-value]


class Overlay:
    """Paths are absolute and without links in their folders.

    What the script moved aside, saved or deleted is remembered; `place` says where its bytes are. A
    path that the script itself made is its own: it may write there again.
    """

    def __init__(self, everything: bool = False) -> None:
        self._everything = everything
        self._thread = threading.local()
        self._folder: str | None = None
        self._cache = os.path.realpath(cache_folder())  # peakline's own, compiled code among it
        self._moved: dict[str, str] = {}  # from where the script thinks it is
        self._gone: set[str] = set()  # deleted, in the script's eyes
        self._own: set[str] = set()  # made by the script, in their own places
        self._own_folders: list[str] = []
        self._twins: set[str] = set()  # names that the script gave to files of its own
        self._temporary: set[str] = set()  # by tempfile: other processes may be told of them
        self.redirected: list[str] = []  # what was asked for, in the order of asking
        self.uploads: list[str] = []

    @property
    def busy(self) -> bool:
        """This thread is inside one of the methods, which look at paths themselves."""
        return getattr(self._thread, "busy", False)

    @contextlib.contextmanager
    def plainly(self) -> Iterator[None]:
        before, self._thread.busy = self.busy, True
        try:
            yield
        finally:
            self._thread.busy = before

    @property
    def folder(self) -> str:
        """The scratch folder, made when it is first needed."""
        if self._folder is None:
            with self.plainly():
                self._folder = _scratch.make("writes")
        return self._folder

    @property
    def is_idle(self) -> bool:
        return not (self._moved or self._gone)

    @_plainly
    def key(self, path: Any, dir_fd: int | None = None) -> str | None:
        """None for what is no path of the script's: a number, a pipe, what peakline keeps."""
        if isinstance(path, int) or path is None:
            return None
        text = os.fsdecode(path)
        if dir_fd is not None and not os.path.isabs(text):
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        folder, name = os.path.split(os.path.abspath(text))
        whole = os.path.join(os.path.realpath(folder), name)
        ours = (self._folder or self._cache, self._cache, *_scratch.held())
        return None if any((whole + "/").startswith(folder + "/") for folder in ours) else whole

    def _at_the_end_of(self, key: str) -> str:
        """What a link in its own place leads to, as the script sees it."""
        for _ in range(_LINKS):
            if key in self._moved or self._is_gone(key) or not os.path.islink(key):
                break
            key = self.key(os.path.join(os.path.dirname(key), os.readlink(key))) or key
        return key

    @_plainly
    def place(self, path: Any, dir_fd: int | None = None, follows: bool = True) -> Any:
        """Where to read `path`, or what it links to. FileNotFoundError when the script has deleted
        it."""
        if self.is_idle or isinstance(path, int) or path is None:
            return path
        key = self.key(path, dir_fd)
        if key is None:
            return path
        if follows:
            key = self._at_the_end_of(key)
        if key in self._moved:
            return self._moved[key]
        if self._is_gone(key):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
        return path

    @_plainly
    def is_old(self, path: Any, dir_fd: int | None = None) -> bool:
        """It was there before, and nothing that the script did lies in its place."""
        key = self.key(path, dir_fd)
        if key is None:
            return False
        key = self._at_the_end_of(key)
        return key not in self._moved and not self._is_own(key) and _exists(key)

    @_plainly
    def place_to_write(self, path: Any, keeps: bool = False, dir_fd: int | None = None) -> Any:
        """Where to write `path`. `keeps`: what is there stays, and is added to or changed."""
        key = self.key(path, dir_fd)
        if key is None or _is_special(key):
            return path
        key = self._at_the_end_of(key)
        if key in self._moved:
            self._own_copy(self._moved[key], key, keeps)
            return self._moved[key]
        if not self._must_move(key):
            self._own.add(key)
            return path
        copies = keeps and _exists(key) and not self._is_gone(key)
        target = self.move(key)
        if copies:
            shutil.copyfile(key, target)
        self._gone.discard(key)
        return target

    @_plainly
    def made_temporary(self, path: Any, dir_fd: int | None = None) -> None:
        """A new file is about to be made under a name that nobody has, as tempfile does."""
        key = self.key(path, dir_fd)
        if key is not None and Path(key).is_relative_to(os.path.realpath(tempfile.gettempdir())):
            self._temporary.add(key)

    def _must_move(self, key: str) -> bool:
        if self._everything or self._is_gone(key):
            return True
        if _is_save(key) and key not in self._temporary:
            return True
        if self._is_own(key):  # but for a second name of a file that was there before
            return _has_other_names(key) and key not in self._twins
        return _exists(key)

    def _is_own(self, key: str) -> bool:
        """What is in a folder of the script's own was not there before."""
        inside = ((key + "/").startswith(own + "/") for own in self._own_folders)
        return key in self._own or any(inside)

    def move(self, key: str) -> str:
        """From now on `key` lies in the scratch folder."""
        target = self.folder + key
        os.makedirs(os.path.dirname(target), exist_ok=True)
        self._moved[key] = target
        self.redirected.append(key)
        return target

    def _own_copy(self, target: str, key: str, keeps: bool) -> None:
        """A link stands for a file that was moved and never written; writing must not follow it."""
        if os.path.islink(target):
            original = os.path.realpath(target)
            os.unlink(target)
            if keeps:
                shutil.copyfile(original, target)

    @_plainly
    def remove(self, path: Any, dir_fd: int | None = None) -> bool:
        """Deletes `path` in the script's eyes. False: it is the script's own, so delete it."""
        key = self.key(path, dir_fd)
        if key is None or _is_special(key):
            return False
        if key not in self._moved and self._is_own(key):
            self._own.discard(key)
            return False
        if key in self._moved:
            target = self._moved.pop(key)
            _remove_quietly(target)
            self._gone.add(key)
            return True
        if self._is_gone(key) or not _exists(key):
            return False  # which refuses
        self._gone.add(key)
        return True

    @_plainly
    def remove_tree(self, path: Any) -> bool:
        """The same for a folder and all in it. What the script made in it is deleted."""
        key = self.key(path)
        if key is None or self._is_own(key):
            return False
        for moved in [known for known in self._moved if known.startswith(key + "/")]:
            _remove_quietly(self._moved.pop(moved))
        for own in [known for known in self._own if known.startswith(key + "/")]:
            _remove_quietly(own)
            self._own.discard(own)
        if _exists(key):
            self._gone.add(key)
        return True

    @_plainly
    def rename(self, source: Any, target: Any) -> bool:
        """False: both ends are the script's own, so rename them."""
        origin, goal = self.key(source), self.key(target)
        if origin is None or goal is None or _is_special(goal):
            return False
        mine = self._is_own(origin)
        if origin not in self._moved and mine and not self._must_move(goal):
            self._rename_own(origin, goal)
            return False
        if os.path.isdir(self._moved.get(origin, origin)):
            return self._rename_folder(origin, goal, mine)
        place = self._moved.get(origin, origin)
        if not _exists(place) or self._is_gone(origin):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(source))
        if os.path.lexists(self._moved.get(goal, "")):
            _remove_quietly(self._moved[goal])
        aside = self._moved.get(goal) or self.move(goal)
        if origin in self._moved or mine:
            shutil.move(place, aside)
        else:
            os.symlink(place, aside)  # a copy only when it is written to
        self._leave(origin)
        self._gone.discard(goal)
        return True

    @_plainly
    def link(self, source: Any, target: Any) -> bool:
        """A second name of a file. False: both are the script's own, so link them."""
        origin, goal = self.key(source), self.key(target)
        if origin is None or goal is None:
            return False
        if origin not in self._moved and self._is_own(origin) and not self._must_move(goal):
            self._own.add(goal)
            self._twins |= {origin, goal}
            return False
        place = self.place(source)
        aside = self._moved.get(goal) or self.move(goal)
        if origin in self._moved or self._is_own(origin):
            os.link(place, aside)
        else:
            os.symlink(os.path.abspath(place), aside)  # a copy only when it is written to
        self._gone.discard(goal)
        return True

    def _rename_own(self, origin: str, goal: str) -> None:
        own = [path for path in self._own if (path + "/").startswith(origin + "/")]
        self._own.difference_update(own)
        self._own.update(goal + path[len(origin) :] for path in own)
        if origin in self._own_folders:
            self._own_folders[self._own_folders.index(origin)] = goal
        for path in [path for path in self._moved if path.startswith(origin + "/")]:
            self._moved[goal + path[len(origin) :]] = self._moved.pop(path)

    def _rename_folder(self, origin: str, goal: str, mine: bool) -> bool:
        """What is in the folder moves with it; the folder itself only if the script made it."""
        for folder, _, names in os.walk(origin):
            for name in names:
                path = os.path.join(folder, name)
                self.rename(path, goal + path[len(origin) :])
        for path in [path for path in self._moved if path.startswith(origin + "/")]:
            self._moved[goal + path[len(origin) :]] = self._moved.pop(path)
        os.makedirs(self.folder + goal, exist_ok=True)
        self._moved[goal] = self.folder + goal
        if mine:
            shutil.rmtree(origin, ignore_errors=True)  # all that was in it has moved
        self._gone.add(origin)
        return True

    def _leave(self, origin: str) -> None:
        self._moved.pop(origin, None)
        self._own.discard(origin)
        self._gone.add(origin)

    @_plainly
    def make_folder(self, path: Any) -> bool:
        """False: make it in its own place, where it is the script's."""
        key = self.key(path)
        if key is None:
            return False
        if not self._everything and not self._is_gone(key):
            if not _exists(key):
                self._own_folders.append(key)
            return False
        if key in self._moved or (_exists(key) and not self._is_gone(key)):
            return False  # which refuses
        os.makedirs(self.folder + key)
        self._moved[key] = self.folder + key
        return True

    def made(self) -> list[str]:
        """What the script has put into its own places."""
        return sorted(self._own | set(self._own_folders))

    def hide(self, paths: list[str]) -> None:
        """The script must not see these: another run of it made them."""
        self._gone.update(paths)

    @_plainly
    def names_in(self, path: Any, names: list[Any]) -> list[Any]:
        """What the script should see in a folder that really has `names`."""
        key = self.key("." if path is None else path)
        if key is None:
            return names
        shown = [name for name in names if not self._is_gone(os.path.join(key, os.fsdecode(name)))]
        shown = [] if self._is_gone(key) else shown
        known = {os.fsdecode(name) for name in shown}
        within = [moved[len(key) + 1 :] for moved in self._moved if moved.startswith(key + "/")]
        more = sorted({rest.split("/")[0] for rest in within} - known)
        return shown + [os.fsencode(name) if isinstance(path, bytes) else name for name in more]

    def _is_gone(self, key: str) -> bool:
        if self.is_idle or key in self._moved or self._is_own(key):
            return False
        return any(key == gone or key.startswith(gone + "/") for gone in self._gone)

    def sentences(self) -> list[str]:
        """What the answer says about it."""
        found = []
        if self.redirected:
            names = list(dict.fromkeys(map(_short, self.redirected)))
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
            found.append(
                f"what the script wrote to {shown} went to a scratch folder that is gone now, so "
                "that nothing was overwritten; --allow-writes lets it write"
            )
        if self.uploads:
            places = ", ".join(dict.fromkeys(self.uploads))
            found.append(f"nothing was sent to {places}; --allow-writes lets the script do so")
        return found

    @_plainly
    def close(self) -> None:
        """Without the scratch folder, and the folders that are empty because of it."""
        for folder in reversed(self._own_folders):
            if any(path.startswith(folder + "/") for path in self.redirected):
                try:
                    os.rmdir(folder)
                except OSError:
                    continue
        if self._folder is not None:
            _scratch.remove(self._folder)
            self._folder = None


def _short(path: str) -> str:
    return os.path.relpath(path) if path.startswith(os.getcwd() + "/") else path


def _is_save(key: str) -> bool:
    name = os.path.basename(key)
    return Path(name).suffix.lower() in _SAVES or name.startswith(_NAMES)


def _has_other_names(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _exists(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def _is_special(key: str) -> bool:
    """A device, a pipe, …: writing to it replaces nothing."""
    try:
        mode = os.stat(key).st_mode
    except OSError:
        return key.startswith(("/dev/", "/proc/", "/sys/"))
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return
