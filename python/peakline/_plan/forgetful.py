"""A call that forgets what backward needs, and runs again when backward asks for it.

This is what torch's checkpoint does, without reentrance, for the programs that training steps are
made of. It is here because of what torch's costs the host: some forty calls of Python for each
tensor that is forgotten, which short ops do not hide. Whatever is not as usual is left to torch's:
compilers, modes, calls inside other such calls, torch's own settings of checkpoints.

Each tensor that an op saves becomes a place (recompute/places.h). The first one that backward opens
runs the function again, up to the last tensor that the first run saved, and fills all places that
still live. Another backward pass through the same graph runs it again.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import checkpoint as torchs

from peakline import _C
from peakline._plan import selective

_DIFFERS = (
    "recomputing {what} gave other tensors than its first run: {how}. What it does must depend on "
    "its arguments alone"
)
_CHANGED = "an argument of {what} was changed in place after the call, which is recomputed"

_hooks = torch._C._autograd


def is_usual() -> bool:
    """Whether a call now may be recomputed by this module."""
    return (
        selective.nobody_watches()
        and not torch._C._len_torch_function_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
        and _hooks._top_saved_tensors_default_hooks(True) is None
        and getattr(torchs, "_enable_checkpoint_early_stop", None) is not False
        and not getattr(torchs, "_checkpoint_debug_enabled", None)
    )


class _Call:
    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> None:
        self.function = function
        self.args = [_Given(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        self.kwargs = kwargs
        self.context = context  # of what is run again
        self.places = _C.recompute.Places()
        self.autocast = _Autocast(_devices(args, kwargs))
        self.random: _Random | None = None
        self.lock = threading.RLock()  # each device has a thread of backward

    def pack(self, tensor: torch.Tensor) -> Any:
        return self.places.add(tensor, self)

    def run_again(self, turn: int) -> None:
        args = [arg.back(self._name()) if isinstance(arg, _Given) else arg for arg in self.args]
        places = self.places
        places.begin(turn)
        try:
            self._fill(args)
        except _C.recompute.Enough:
            return
        except _C.recompute.Differs as error:
            raise RuntimeError(_DIFFERS.format(what=self._name(), how=error)) from None
        if places.missing():
            how = f"{places.missing()} less were saved"
            raise RuntimeError(_DIFFERS.format(what=self._name(), how=how))

    def _fill(self, args: list[Any]) -> None:
        with contextlib.ExitStack() as stack:
            if self.random is not None:
                stack.enter_context(self.random.again())
            stack.enter_context(torch.enable_grad())
            self.autocast.enter(stack)
            stack.enter_context(self.context)
            _hooks._push_saved_tensors_default_hooks(self.places.fill, _same)
            stack.callback(_hooks._pop_saved_tensors_default_hooks)
            self.function(*args, **self.kwargs)

    def _name(self) -> str:
        owner = getattr(self.function, "__self__", None)
        return type(owner).__name__ if owner is not None else "a module"


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


_turns = itertools.count(-2, -1)  # backward passes count from 0


def _unpack(place: Any) -> torch.Tensor:
    # Outside of a backward pass, as when a program looks at what a node has saved, each is a turn.
    turn: int = torch._C._current_graph_task_id()
    if turn == -1:
        turn = next(_turns)
    tensor: torch.Tensor | None = place.take(turn)
    if tensor is None:
        with place.call.lock:
            tensor = place.take(turn)
            if tensor is None:
                place.call.run_again(turn)
                tensor = place.take(turn)
    assert tensor is not None
    return tensor


class _Given:
    """An argument. Nobody may have changed it when it is used again."""

    __slots__ = ("_needs_gradient", "_tensor", "_version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach()
        self._needs_gradient = tensor.requires_grad
        self._version = None if tensor.is_inference() else self._tensor._version

    def back(self, of: str) -> torch.Tensor:
        if self._version is not None and self._tensor._version != self._version:
            raise RuntimeError(_CHANGED.format(what=of))
        return self._tensor.detach().requires_grad_(self._needs_gradient)


def _devices(args: Any, kwargs: Any) -> list[torch.device]:
    """Accelerators that the arguments are on."""
    found: dict[torch.device, None] = {}
    for arg in (*args, *kwargs.values()):
        inside = arg if isinstance(arg, (tuple, list)) else (arg,)
        for one in inside:
            if isinstance(one, torch.Tensor) and one.device.type not in ("cpu", "meta"):
                found[one.device] = None
    return list(found)


class _Autocast:
    """How it is set."""

    def __init__(self, devices: list[torch.device]) -> None:
        self._types = {"cpu", *(device.type for device in devices)}
        self._set = self._now()

    def _now(self) -> dict[str, tuple[Any, ...]]:
        cached = torch.is_autocast_cache_enabled()
        return {
            kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), cached)
            for kind in self._types
        }

    def enter(self, stack: contextlib.ExitStack) -> None:
        """Sets it so where it is set otherwise now."""
        now = self._now()
        for kind, (enabled, dtype, cached) in self._set.items():
            if now[kind] != (enabled, dtype, cached):
                stack.enter_context(
                    torch.autocast(kind, enabled=enabled, dtype=dtype, cache_enabled=cached)
                )


class _Random:
    """States of the generators that a function may draw from."""

    def __init__(self, devices: list[torch.device]) -> None:
        modules = {device.type: torch.get_device_module(device) for device in devices}
        self._devices = [
            (modules[device.type], device)
            for device in devices
            if getattr(modules[device.type], "_initialized", True)
        ]
        self._states = self._now()

    def _now(self) -> list[torch.Tensor]:
        own = [module.get_rng_state(device) for module, device in self._devices]
        return [torch.get_rng_state(), *own]

    def is_used(self) -> bool:
        """Whether somebody has drawn since."""
        return not all(map(torch.equal, self._states, self._now()))

    def _set(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        for (module, device), state in zip(self._devices, states[1:], strict=True):
            module.set_rng_state(state, device)

    @contextlib.contextmanager
    def again(self) -> Any:
        after = self._now()
        self._set(self._states)
        try:
            yield
        finally:
            self._set(after)


def call(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    contexts: Callable[[], tuple[Any, Any]] | None = None,
) -> Any:
    """Calls it; backward recomputes what it needs. `contexts`: of the call, and of what is run
    again."""
    first, again = contexts() if contexts else (contextlib.nullcontext(), contextlib.nullcontext())
    forgotten = _Call(function, args, kwargs, again)
    random = _Random(_devices(args, kwargs))
    with first:
        _hooks._push_saved_tensors_default_hooks(forgotten.pack, _unpack)
        try:
            out = function(*args, **kwargs)
        finally:
            _hooks._pop_saved_tensors_default_hooks()
    if random.is_used():
        forgotten.random = random
    return out
