"""Ops of other libraries that have one kernel in Python for every device (`custom_op` without
`device_types`, `CompositeExplicitAutograd`).

It runs as it is, and what it allocates counts, as long as it can: kernels that it launches may come
from an extension that is not there, or want a driver. Then the op's fake says what comes out of it.
An op that also has a kernel for CUDA would run that one, so its fake answers from the start.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import torch
from torch._library import utils
from torch._library.custom_ops import OPDEFS

from peakline._patches import Patches
from peakline._virtual_cuda import _missing_fakes
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes

_KEY = "CompositeExplicitAutograd"
_VIRTUAL = "PrivateUse1"
_DEFAULT = "Undefined"  # a key for which nobody but the default kernel answers
_ANOTHERS = (
    "{names} has a kernel for CUDA and no fake: its default code ran in place of that kernel, and "
    "what it allocated counts as guessed"
)
_REASON_LENGTH = 120


def install(patches: Patches, notes: Notes, engine: Engine) -> Mapping[str, str]:
    """Gives the ops whose own code failed so far, each with its reason."""
    kernels = _Kernels(notes, engine)
    original: Any = torch.library.Library.impl

    def impl(
        self: Any, op_name: Any, fn: Any, dispatch_key: str = "", *args: Any, **kwargs: Any
    ) -> Any:
        done = original(self, op_name, fn, dispatch_key, *args, **kwargs)
        if (dispatch_key or self.dispatch_key) == _KEY:
            kernels.stand_before(_full_name(self.ns, op_name), fn)
        return done

    for entry in list(torch.library._impls):
        space, name, key = entry.split("/")
        if key == _KEY:
            kernels.stand_before(f"{space}::{name}", None)
    patches.set(torch.library.Library, "impl", impl)
    patches.on_restore(kernels.leave)
    return kernels.failed


class _Kernels:
    """Those that stand before ops' own, for tensors of a virtual GPU."""

    def __init__(self, notes: Notes, engine: Engine) -> None:
        self._notes = notes
        self._engine = engine
        self._libraries: dict[str, torch.library.Library] = {}
        self._taken: set[str] = set()
        self.failed: dict[str, str] = {}  # ops, and why
        self._anothers: set[str] = set()

    def stand_before(self, name: str, kernel: Any) -> None:
        if name in self._taken:  # the program defines it anew
            return self._engine.run_own_code(name)
        if _is_torchs(name, kernel) or _has_kernel(name, _VIRTUAL):
            return
        self._taken.add(name)
        space, _, op = name.partition("::")
        if space not in self._libraries:
            self._libraries[space] = torch.library.Library(space, "IMPL")
        self._libraries[space].impl(op, self._kernel(name), _VIRTUAL)

    def leave(self) -> None:
        for library in self._libraries.values():
            library._destroy()

    def _kernel(self, name: str) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            # A program may define the same op anew.
            op = utils.lookup_op(name)
            if _has_kernel(name, "CUDA"):
                return self._in_place_of_another(op, name, args, kwargs)
            try:
                return _run(op, _DEFAULT, args, kwargs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if not _has_fake(op, name):
                    error.add_note(_missing_fakes.sentence(op._schema, _reason(error)))
                    raise
                traceback.clear_frames(error.__traceback__)  # they hold tensors
                failed = error
            try:
                return self._by_fake(op, name, failed, args, kwargs)
            finally:
                del failed  # it knows this frame, which would keep the arguments

        return run

    def _by_fake(self, op: Any, name: str, error: Exception, args: Any, kwargs: Any) -> Any:
        self._engine.count_results_alone(name)
        try:
            results = _run(op, _VIRTUAL, args, kwargs)
        except Exception:  # both refuse: the program is wrong
            self._engine.run_own_code(name)
            raise error from None
        self.failed[name] = _reason(error)
        return results

    def _in_place_of_another(self, op: Any, name: str, args: Any, kwargs: Any) -> Any:
        if _has_fake(op, name):
            self._engine.count_results_alone(name)
            return _run(op, _VIRTUAL, args, kwargs)
        self._anothers.add(name)
        self._notes.put(
            "another's kernel", _ANOTHERS.format(names=", ".join(sorted(self._anothers)))
        )
        self._engine.enter_compiled_region()
        try:
            return _run(op, _DEFAULT, args, kwargs)
        finally:
            self._engine.leave_compiled_region()


def _run(op: Any, key: str, args: Any, kwargs: Any) -> Any:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return op.redispatch(keys, *args, **kwargs)


def _full_name(space: str, op: Any) -> str:
    """With its overload, if it has one."""
    name = op if isinstance(op, str) else op.name()
    return name if "::" in name else f"{space}::{name}"


def _is_torchs(name: str, kernel: Any) -> bool:
    """Torch's own ops are made of others, and run everywhere."""
    defined = OPDEFS.get(name)
    module = getattr(kernel if defined is None else defined._init_fn, "__module__", None) or ""
    return module.partition(".")[0] == "torch"


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _has_fake(op: Any, name: str) -> bool:
    if utils.can_generate_trivial_fake_impl(op):
        return True
    defined = OPDEFS.get(name)
    # torch gives each of custom_op's a fake that only raises.
    return _has_kernel(name, "Meta") if defined is None else defined._abstract_fn is not None


def _reason(error: Exception) -> str:
    """One line, and not the whole of a long one."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
    return text if len(text) <= _REASON_LENGTH else f"{text[:_REASON_LENGTH].rstrip()}…"
