"""Whole numbers that were made up, followed on the host to where a program uses them.

`lengths.cpu().numpy()` is a copy of all of them, and says nothing of what they are for. So the copy
is remembered, and its numbers tell when one of them becomes an index, a size, a loop's bound, or
decides a branch. What is only compared, counted and shown does not tell.
"""

from __future__ import annotations

import dis
import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from peakline._patches import Patches

Tell = Callable[[str], None]  # of "size" or "branch"

_NUMPY = str(Path(np.__file__).parent) + os.sep
_PRUNED_AT = 256  # storages, before those that are gone are forgotten
# NumPy's functions whose results are as large as their values say.
_SIZED_BY_VALUES = {"argwhere", "bincount", "compress", "extract", "flatnonzero", "nonzero"}
_SIZED_BY_VALUES |= {"repeat", "split", "array_split", "unique"}
_KEEPS = ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
_COMPARES = ("lt", "le", "gt", "ge", "eq", "ne")
_now: list[Tell] = []  # of the virtual GPU that is on


class MadeUp:
    """Which of the host's tensors are copies of such numbers."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._storages: dict[int, StorageWeakRef] = {}
        self._thread = threading.local()

    def answered(self) -> None:
        """A value was made up, on this thread."""
        self._thread.answered = True

    def holds(self, tensor: torch.Tensor) -> bool:
        if not self._storages or tensor.is_floating_point() or not _has_bytes(tensor):
            return False
        found = self._storages.get(tensor.untyped_storage()._cdata)
        return found is not None and not found.expired()

    def install(self, patches: Patches) -> None:
        tensor: Any = torch.Tensor
        for name in ("cpu", "to"):
            patches.set(tensor, name, self._copying(getattr(tensor, name)))
        patches.set(tensor, "numpy", self._into_numpy(tensor.numpy))
        for name in ("item", "__int__", "__index__", "__bool__"):
            patches.set(tensor, name, self._reading(getattr(tensor, name)))
        # They hand out plain arrays, whatever they are made of. numba knows functions by identity,
        # and would know no other ones.
        for name in () if _has_numba() else ("array", "asarray"):
            patches.set(np, name, _into_array(getattr(np, name)))
        _now.append(self.tell)
        patches.on_restore(lambda: _now.remove(self.tell))

    def _copying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def copy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self._thread.answered = False
            made = original(tensor, *args, **kwargs)
            if self._thread.answered and _is_whole(made) and _has_bytes(made):
                self._remember(made)
            return made

        return copy

    def _remember(self, tensor: torch.Tensor) -> None:
        if len(self._storages) >= _PRUNED_AT:
            there = {key: ref for key, ref in self._storages.items() if not ref.expired()}
            self._storages = there if len(there) < _PRUNED_AT else {}
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = StorageWeakRef(storage)

    def _into_numpy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def numpy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self._thread.answered = False
            made = original(tensor, *args, **kwargs)
            known = not (self._thread.answered and _is_whole(tensor)) and not self.holds(tensor)
            return made if known else made.view(_Array)

        return numpy

    def _reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def read(tensor: torch.Tensor) -> Any:
            if self._storages and self.holds(tensor):
                self.tell("branch" if tensor.dtype == torch.bool else "size")
            return original(tensor)

        return read


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def _has_bytes(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu and tensor.layout == torch.strided and type(tensor) is torch.Tensor


def _tell(decides: str = "size") -> None:
    if _now:
        _now[-1](decides)


def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _into_array(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def array(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if not args or not isinstance(args[0], torch.Tensor) or made.dtype.kind not in "biu":
            return made
        return made.view(_Array) if type(args[0].numpy(force=True)) is _Array else made

    return array


class _Array(np.ndarray[Any, Any]):
    """An array of them. Its name is the plain one's for programs that ask what it is called, and so
    is what is pickled."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, np.ndarray) and isinstance(key, _Array) and key.dtype == bool:
            _tell()
        return _followed(super().__getitem__(key))

    def item(self, *args: Any) -> Any:
        _tell("branch" if self.dtype == bool else "size")
        return super().item(*args)

    def tolist(self) -> Any:
        _tell()
        return super().tolist()

    def __int__(self) -> int:
        _tell()
        return int(self.view(np.ndarray))

    def __index__(self) -> int:
        _tell()
        return self.view(np.ndarray).__index__()

    def __bool__(self) -> bool:
        _tell("branch")
        return bool(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if array.dtype.kind not in "biu":  # a share, a mean
            plain = array.view(np.ndarray)
            return plain[()] if return_scalar else plain
        return _followed(array[()]) if return_scalar else array.view(_Array)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(function, "__name__", "")
        if name in _SIZED_BY_VALUES or (name == "where" and len(args) + len(kwargs) == 1):
            _tell()
        return super().__array_function__(function, types, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


_Array.__name__ = _Array.__qualname__ = "ndarray"
_Array.__module__ = "numpy"


def _followed(found: Any) -> Any:
    """A single one of them, as it was but that it tells. NumPy's bools cannot be others, so what
    the program does with one is seen at once."""
    if isinstance(found, np.integer):
        kind: Any = type(found)
        return _number_type(kind)(found)
    if isinstance(found, np.bool_) and _is_a_branch(_outside_of_numpy(sys._getframe(2))):
        _tell("branch")
    return found


@functools.lru_cache(maxsize=32)
def _number_type(kind: Any) -> Any:
    """np.int64 and the like, that tell when they become a whole number of Python's."""
    if getattr(kind, "_made_up", False):
        return kind

    def plain(number: Any) -> Any:
        return np.frombuffer(number.tobytes(), dtype=number.dtype)[0]

    def telling(name: str) -> Callable[[Any], Any]:
        original = getattr(kind, name)
        decides = "branch" if name == "__bool__" else "size"

        def read(number: Any) -> Any:
            if not _is_text_made_by(sys._getframe(1)):
                _tell(decides)
            return original(plain(number))

        return read

    def keeping(name: str) -> Callable[..., Any]:
        original = getattr(kind, name)

        def compute(number: Any, other: Any) -> Any:
            return _followed(original(plain(number), other))

        return compute

    def comparing(name: str) -> Callable[..., Any]:
        original = getattr(kind, name)

        def compare(number: Any, other: Any) -> Any:
            if _is_a_branch(sys._getframe(1)):
                _tell("branch")
            return original(plain(number), other)

        return compare

    members: dict[str, Any] = {
        "_made_up": True,
        "__module__": kind.__module__,
        "__hash__": kind.__hash__,
        "__format__": lambda number, spec: format(plain(number), spec),
        "__repr__": lambda number: repr(plain(number)),
        "__str__": lambda number: str(plain(number)),
        "__float__": lambda number: float(plain(number)),
        "__round__": lambda number, *digits: round(plain(number), *digits),
        **{name: telling(name) for name in ("__index__", "__int__", "item", "__bool__")},
        **{name: comparing(name) for name in (f"__{word}__" for word in _COMPARES)},
    }
    for word in _KEEPS:
        members |= {name: keeping(name) for name in (f"__{word}__", f"__r{word}__")}
    return type(kind.__name__, (kind,), members)


@functools.lru_cache(maxsize=256)
def _after(code: Any, place: int) -> tuple[str, str]:
    """The instruction at the place, and the one that follows it."""
    found = [one for one in dis.get_instructions(code) if one.offset >= place]
    names = [f"{one.opname} {one.argrepr}" for one in found[:2]]
    return (names[0], names[1]) if len(names) == 2 else ("", "")


def _outside_of_numpy(frame: FrameType) -> FrameType:
    while frame.f_code.co_filename.startswith(_NUMPY) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_a_branch(frame: FrameType) -> bool:
    following = _after(frame.f_code, frame.f_lasti)[1]
    return following.startswith(("POP_JUMP", "TO_BOOL", "JUMP_IF"))


def _is_text_made_by(frame: FrameType) -> bool:
    """`"%d" % number`."""
    return _after(frame.f_code, frame.f_lasti)[0] == "BINARY_OP %"
