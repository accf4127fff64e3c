"""Who keeps a tensor alive: the way to it in Python, from a variable of the program.

Nothing is kept for this while the program runs. When it is asked, the objects that refer to a
tensor are looked up, and those that refer to them, until a variable is found: of a module, of a
function that is running, of a class.
"""

from __future__ import annotations

import contextvars
import gc
import os
import re
import reprlib
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from peakline._frame_variables import variables_of
from peakline._stacks import is_library
from peakline._torch_places import place

_FakeTensor = place("torch._subclasses.fake_tensor:FakeTensor")
_MOST_OBJECTS = 2_000  # at one distance from a tensor
_MOST_LEVELS = 20
_MOST_NODES = 200_000  # of autograd's graphs
_MOST_PARTS = 6  # of a key
_CLOSURE = "<closure "
_HERE = os.path.dirname(os.path.abspath(__file__))


# A device, and an address there.
Place = tuple[str, int]
Addresses = Callable[[torch.Tensor], list[int]]

# Python's collector knows neither what C++ holds nor what arrays and buffers share.
NOT_FOUND = "(no variable found; C++ or a NumPy array may hold it)"


@dataclass(frozen=True)
class Holder:
    """A tensor's memory, and who holds it."""

    bytes: int
    device: str
    shape: tuple[int, ...]
    dtype: str
    path: str  # "Trainer.history[17]['loss']"; "" when no variable was found

    def __str__(self) -> str:
        size = torch.Size(self.shape)
        return f"{self.path or NOT_FOUND}: {tuple(size)} {self.dtype}, {self.bytes} bytes"


def find_holders(
    n: int, device: torch.device | None, error: BaseException | None = None
) -> list[Holder]:
    """The functions that `error` has just ended count as running."""
    gc.unfreeze()  # what gc.freeze() has put away is shown to nobody who asks for referrers
    gc.collect()
    tensors = _living_tensors()
    found = _by_storage(tensors, device)
    for storage in _of_parameters(tensors):
        found.pop(storage, None)
    _add_saved(found, tensors, device)
    search = _search_beside(tensors, found, error)
    largest = sorted(found.values(), key=lambda held: -held.bytes)[:n]
    return [held.holder(search) for held in largest]


def holders_at(
    groups: Iterable[list[Place]],
    addresses: Addresses,
    enough: int,
    error: BaseException | None = None,
) -> list[list[str]]:
    """Who holds the memory at the first places of each group, until `enough` of them are known.

    `addresses` says where a tensor lies. Nothing is collected for this, and what is frozen stays
    so: a program that did not ask goes on as it would have.
    """
    tensors = _living_tensors()
    found = _by_storage(tensors, None, addresses)
    _add_saved(found, tensors, None, addresses)
    search = _search_beside(tensors, found, error)
    held_at = {(held.device, a): held for held in found.values() for a in held.addresses}
    search.leave_out(held_at)
    all_paths: list[list[str]] = []
    for group in groups:
        paths: list[str] = []
        for address in group:
            held = held_at.get(address) if len(paths) < enough else None
            path = "" if held is None else held.holder(search).path
            paths += [path] if path else []
        all_paths.append(paths)
    return all_paths


def _search_beside(
    tensors: list[torch.Tensor], found: dict[int, _Held], error: BaseException | None = None
) -> _Search:
    ours = {id(tensors), id(found), *(id(held.tensors) for held in found.values())}
    ours |= {id(held.__dict__) for held in found.values()} | {id(held) for held in found.values()}
    return _Search(ours, error)


class _Held:
    """A storage, the tensors of Python that show it, and the graph that saved it otherwise."""

    def __init__(self, tensor: torch.Tensor, addresses: Addresses) -> None:
        self.bytes = tensor.untyped_storage().nbytes()
        self.device = str(tensor.device)
        self.shape = tuple(tensor.shape)
        self.dtype = str(tensor.dtype).removeprefix("torch.")
        self.tensors: list[torch.Tensor] = []
        self.saved_by: tuple[torch.Tensor, str] | None = None
        self.addresses = addresses(tensor)

    def holder(self, search: _Search) -> Holder:
        path = ""
        for tensor in self.tensors:  # a loop: a generator of ours would be found as a holder
            path = path or search.path_to(tensor)
        if not path and self.saved_by is not None:
            root, node = self.saved_by
            at = search.path_to(root)
            path = f"{at}.grad_fn, saved for {node}" if at else f"a graph, saved for {node}"
        return Holder(self.bytes, self.device, self.shape, self.dtype, path)


def _living_tensors() -> list[torch.Tensor]:
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return [tensor for tensor in found if not _is_imagined(tensor)]


def _is_imagined(tensor: torch.Tensor) -> bool:
    """What a compiler reckons with, and meta tensors, take no memory. Asking one of symbolic size
    for that size may even fail."""
    if issubclass(type(tensor), _FakeTensor):
        return tensor.fake_mode.shape_env is not None  # type: ignore[attr-defined]
    return tensor.is_meta


def _storage_of(tensor: torch.Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse ones, and others without a storage
        return None


def _nowhere(tensor: torch.Tensor) -> list[int]:
    return []


def _by_storage(
    tensors: list[torch.Tensor], device: torch.device | None, addresses: Addresses = _nowhere
) -> dict[int, _Held]:
    found: dict[int, _Held] = {}
    for tensor in tensors:
        storage = _storage_of(tensor)
        if storage is None or not _is_on(tensor, device):
            continue
        if storage not in found:
            found[storage] = _Held(tensor, addresses)
        found[storage].tensors.append(tensor)
    return found


def _of_parameters(tensors: list[torch.Tensor]) -> set[int]:
    """Parameters and their gradients are held by their modules, as everybody knows. (Those that
    are new with every step are not: growth asks for them, too.)"""
    parameters = [tensor for tensor in tensors if isinstance(tensor, torch.nn.Parameter)]
    gradients = [tensor.grad for tensor in parameters if tensor.grad is not None]
    storages = [_storage_of(tensor) for tensor in [*parameters, *gradients]]
    return {storage for storage in storages if storage is not None}


def _is_on(tensor: torch.Tensor, device: torch.device | None) -> bool:
    return device is None or tensor.device == device


# Graphs.


def _add_saved(
    found: dict[int, _Held],
    tensors: list[torch.Tensor],
    device: torch.device | None,
    addresses: Addresses = _nowhere,
) -> None:
    """What autograd's graphs have saved: it may be that no variable of Python's leads to it."""
    known = {_storage_of(tensor) for tensor in tensors}
    met: set[Any] = set()
    for root in _last_results(tensors):
        for node in _nodes(root.grad_fn, met):
            for tensor in _saved_in(node):
                storage = _storage_of(tensor)
                if storage is None or not _is_on(tensor, device):
                    continue
                if storage not in known:
                    known.add(storage)
                    found[storage] = _Held(tensor, addresses)
                held = found.get(storage)
                if held is not None and held.saved_by is None:
                    held.saved_by = (root, node.name().removeprefix("torch::autograd::"))


def _last_results(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors with a graph; those that no other tensor's graph leads to come first, since variables
    show them."""
    roots = [tensor for tensor in tensors if tensor.grad_fn is not None]
    below: set[Any] = set()
    for root in roots:
        for node in _below(root.grad_fn):
            for _ in _nodes(node, below):
                pass
    return sorted(roots, key=lambda root: root.grad_fn in below)


def _below(node: Any) -> list[Any]:
    return [below for below, _ in node.next_functions if below is not None]


def _nodes(first: Any, met: set[Any]) -> Iterator[Any]:
    waiting = [first]
    while waiting and len(met) < _MOST_NODES:
        node = waiting.pop()
        if node in met:
            continue
        met.add(node)
        yield node
        waiting += _below(node)


def _saved_in(node: Any) -> Iterator[torch.Tensor]:
    """Without unpacking: that may run the program's own hooks, or compute things again. A node
    that adds up a leaf's gradient holds the leaf."""
    leaf = getattr(node, "variable", None)
    if isinstance(leaf, torch.Tensor) and leaf.is_leaf:
        yield leaf
    for name in dir(node):
        if not name.startswith("_raw_saved_"):
            continue
        try:
            saved = getattr(node, name)
        except RuntimeError:  # its buffers were freed
            return
        for one in saved if isinstance(saved, (list, tuple)) else [saved]:
            data = getattr(one, "data", None)
            if isinstance(data, torch.Tensor) and getattr(one, "unpack_hook", None) is None:
                yield data


# Paths.


class _Search:
    """Finds ways from variables to objects, backwards."""

    def __init__(self, ours: set[int], error: BaseException | None) -> None:
        self._frames = _ended_frames(error) + _running_frames()
        self._running = {id(frame) for frame in self._frames}
        # What torch's own functions call it says little to the program's author.
        of_torch = [frame for frame in self._frames if is_library(frame.f_code.co_filename)]
        of_program = [frame for frame in self._frames if frame not in of_torch]
        self._locals = _context_variables() | dict(self._variables(of_program))
        self._of_library = dict(self._variables(of_torch))
        self._globals = {
            id(module.__dict__): name
            for name, module in list(sys.modules.items())
            if isinstance(module, types.ModuleType) and name != "__mp_main__"  # __main__ again
        }
        known = (self._frames, self._locals, self._of_library, self.__dict__, self)
        self._ours = ours | {*map(id, known)}

    def leave_out(self, thing: object) -> None:
        """It is ours, and holds nothing of the program's."""
        self._ours.add(id(thing))

    def _variables(self, frames: list[types.FrameType]) -> Iterator[tuple[int, str]]:
        # The innermost function that knows an object says most about it.
        for frame in reversed(frames):
            if frame.f_locals is frame.f_globals:
                continue
            for name, value in variables_of(frame):
                yield id(value), f"{frame.f_code.co_qualname}(): {name}"

    def path_to(self, wanted: object) -> str:
        """The shortest; "" when no variable leads to it."""
        level: dict[int, tuple[Any, str]] = {id(wanted): (wanted, "")}
        met = {id(wanted)} | self._ours
        hint = in_library = ""
        for _ in range(_MOST_LEVELS):
            for number, (_thing, suffix) in level.items():
                if number in self._locals:
                    return self._locals[number] + suffix
                if number in self._of_library:
                    in_library = in_library or self._of_library[number] + suffix
            things = [thing for thing, _suffix in level.values()]
            met |= {id(level), id(things), *map(id, level.values())}
            above: dict[int, tuple[Any, str]] = {}
            # One walk over all objects finds everything that refers to any of these.
            for referrer in gc.get_referrers(*things):
                if id(referrer) in met or self._is_ours(referrer):
                    continue
                met.add(id(referrer))
                for thing, suffix in _targets(referrer, level):
                    root = self._root(referrer, thing)
                    if root:
                        return root + suffix
                    step = _step(referrer, thing)
                    if step is None:
                        continue
                    path = _joined(referrer, thing, step, suffix)
                    hint = hint or _hint(referrer, path)
                    above[id(referrer)] = (referrer, path)
                    break
                if len(above) >= _MOST_OBJECTS:
                    break
            if not above:
                break
            level = above
        return in_library or hint

    def _root(self, referrer: object, thing: object) -> str:
        if isinstance(referrer, dict) and (module := self._module_of(referrer)) is not None:
            for name, value in list(referrer.items()):
                if value is thing:
                    return name if module == "__main__" else f"{module}.{name}"
        if isinstance(referrer, type):
            for name, value in list(vars(referrer).items()):
                if value is thing:
                    return f"{referrer.__qualname__}.{name}"
        return ""

    def _module_of(self, variables: dict[Any, Any]) -> str | None:
        """The module with these variables; it need not be imported by its name any more."""
        if id(variables) in self._globals:
            return self._globals[id(variables)]
        name = variables.get("__name__") if "__builtins__" in variables else None
        return name if isinstance(name, str) else None

    def _is_ours(self, referrer: object) -> bool:
        if isinstance(referrer, types.FrameType):
            # What running functions hold is known by their variables.
            return id(referrer) in self._running or _is_own_frame(referrer)
        if isinstance(referrer, types.GeneratorType):
            return referrer.gi_code.co_filename.startswith(_HERE)
        return False


def _context_variables() -> dict[int, str]:
    """Python's own dict of them is one that nobody can read a name from."""
    here = contextvars.copy_context()
    return {id(value): f"the context variable {variable.name}" for variable, value in here.items()}


def _targets(referrer: object, level: dict[int, tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    for referent in gc.get_referents(referrer):
        if id(referent) in level:
            yield level[id(referent)]


def _joined(referrer: object, thing: object, step: str, suffix: str) -> str:
    """The way on from `referrer`. Only an object and a function know names of what they hold."""
    if isinstance(referrer, types.FunctionType):
        return step + _closed_over(referrer, suffix)
    is_own = isinstance(referrer, type) or getattr(referrer, "__dict__", None) is thing
    if isinstance(thing, dict) and is_own:
        return step + re.sub(r"^\['(\w+)'\]", r".\1", suffix)
    return step + suffix


def _hint(referrer: object, path: str) -> str:
    """What to say when no variable is found."""
    return type(referrer).__qualname__ + path if path.startswith(".") else ""


def _running_frames() -> list[types.FrameType]:
    """Of the program. A frame of ours in a variable of its own would be a cycle, and keep all that
    every function around it knows until the next collection."""
    found: list[types.FrameType] = []
    at: types.FrameType | None = None
    for at in sys._current_frames().values():
        while at is not None:
            if not _is_own_frame(at):
                found.append(at)
            at = at.f_back
    return found


def _ended_frames(error: BaseException | None) -> list[types.FrameType]:
    """The innermost first."""
    found: list[types.FrameType] = []
    at = None if error is None else error.__traceback__
    while at is not None:
        if not _is_own_frame(at.tb_frame):
            found.insert(0, at.tb_frame)
        at = at.tb_next
    return found


def _is_own_frame(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_HERE)


def _step(referrer: Any, thing: object) -> str | None:
    """How `referrer` leads to `thing`; None when it does not hold it."""
    if isinstance(referrer, dict):
        return _key(referrer, thing)
    if isinstance(referrer, (list, tuple, deque)):
        return _index(referrer, thing)
    if isinstance(referrer, (set, frozenset)):
        return "{…}"
    if isinstance(referrer, types.CellType):
        return ""
    if isinstance(referrer, types.FunctionType):
        return _of_function(referrer, thing)
    if isinstance(referrer, types.MethodType):
        return ".__self__"
    if isinstance(referrer, types.FrameType):
        return _of_frame(referrer, thing)
    if isinstance(referrer, types.TracebackType):
        return ""  # its exception has a name for it
    if isinstance(referrer, BaseException):
        return (
            ".__traceback__" if _is_traceback_of(referrer, thing) else _attribute(referrer, thing)
        )
    if isinstance(referrer, (types.GeneratorType, types.CoroutineType)):
        frame = getattr(referrer, "gi_frame", None) or getattr(referrer, "cr_frame", None)
        return (frame and _of_frame(frame, thing)) or ""
    return _attribute(referrer, thing)


def _key(referrer: dict[Any, Any], thing: object) -> str | None:
    for key, value in list(referrer.items()):
        if value is thing:
            return f"[{_as_text(key)}]"
        if key is thing:
            return "[key]"
    return None


def _as_text(key: object) -> str:
    """Of plain values only: another object's own text may be long, and cost memory to make."""
    if isinstance(key, torch.Tensor):
        return f"{type(key).__name__} of {tuple(key.shape)}"
    if isinstance(key, type):
        return key.__qualname__
    if type(key) is tuple and len(key) <= _MOST_PARTS:
        return "(" + ", ".join(map(_as_text, key)) + ("," if len(key) == 1 else "") + ")"
    if type(key) in (str, bytes):
        return reprlib.repr(key)
    if key is None or isinstance(key, (bool, int, float, torch.device, torch.dtype)):
        return repr(key)
    return type(key).__qualname__


def _index(referrer: Iterable[Any], thing: object) -> str | None:
    for i, value in enumerate(referrer):
        if value is thing:
            return f"{_CLOSURE}{i}>" if isinstance(thing, types.CellType) else f"[{i}]"
    return None


def _closed_over(function: types.FunctionType, suffix: str) -> str:
    """A closure's variable by its name, which only the function knows."""
    if not suffix.startswith(_CLOSURE):
        return suffix
    index, _, rest = suffix.removeprefix(_CLOSURE).partition(">")
    return function.__code__.co_freevars[int(index)] + rest


def _of_function(function: types.FunctionType, thing: object) -> str | None:
    if function.__closure__ is thing:
        return " closes over "
    if function.__defaults__ is thing:
        return ".__defaults__"
    if function.__dict__ is thing:
        return ""
    return None


def _of_frame(frame: types.FrameType, thing: object) -> str | None:
    """Of a function that is over, and kept by a traceback or a generator."""
    for name, value in variables_of(frame):
        if value is thing:
            return f" → {frame.f_code.co_qualname}(): {name}"
    return None


def _is_traceback_of(error: BaseException, thing: object) -> bool:
    at = error.__traceback__
    while at is not None:
        if at is thing or at.tb_frame is thing:
            return True
        at = at.tb_next
    return False


def _attribute(referrer: object, thing: object) -> str | None:
    if isinstance(referrer, type) and isinstance(thing, dict):
        return ""
    if getattr(referrer, "__dict__", None) is thing:
        return ""
    attributes = getattr(referrer, "__dict__", None)
    if isinstance(attributes, dict):
        for name, value in list(attributes.items()):
            if value is thing:
                return f".{name}"
    if isinstance(referrer, BaseException) and referrer.args is thing:
        return ".args"
    # Slots, and what types of C show in the same way. Reading one runs nothing of the program's.
    for kind in type(referrer).__mro__:
        for name, member in list(vars(kind).items()):
            if isinstance(member, types.MemberDescriptorType) and _read(member, referrer) is thing:
                return f".{name}"
    return ".…"


def _read(member: types.MemberDescriptorType, thing: object) -> object:
    try:
        return member.__get__(thing)
    except AttributeError:  # a slot that is empty
        return None
