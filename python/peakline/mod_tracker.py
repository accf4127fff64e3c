"""Which modules are running: a drop-in for torch.distributed._tools.mod_tracker."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from peakline._dropin.compile_safe import (
    BoundaryHook,
    ModuleFilter,
    PostForwardHook,
    hook_submodules,
)
from peakline._dropin.grad_hooks import GradHooks
from peakline._dropin.trees import grad_tensors_in

__all__ = ["ModTracker"]

_Hook = Callable[..., Any]
_current_graph_task_id = torch._C._current_graph_task_id


def _in_compiled_module() -> bool:
    """Importing the compiler takes seconds, and nothing is compiled before it is there."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return frames is not None and frames._is_in_optimized_module()


class ModTracker:
    """Context manager that knows which modules are running at any moment.

    `parents` holds the names of the modules whose forward or backward is under way, and always
    "Global". A name is the class name of the outermost module followed by the attribute path.
    Hooks given to `register_user_hooks` are called at each boundary, while the module's name is in
    `parents`.

    Modules are held weakly. One tracker follows one backward pass at a time.
    """

    parents: set[str]

    def __init__(self) -> None:
        self.parents = {"Global"}
        self._active_module_cnt: dict[str, int] = {}
        self._known_modules: weakref.WeakKeyDictionary[torch.nn.Module, str] = (
            weakref.WeakKeyDictionary()
        )
        self._seen_modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        # The same by id, for the hooks: weak dictionaries are slow. Empty after any new name.
        self._names: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}
        self._has_callback = False
        self._post_bw_callbacks_to_enqueue: list[_Hook] = []
        self._user_pre_fw_hook: _Hook | None = None
        self._user_post_fw_hook: _Hook | None = None
        self._user_pre_bw_hook: _Hook | None = None
        self._user_post_bw_hook: _Hook | None = None
        self._grad_hooks = GradHooks()
        self._backward_done = False
        # Called with the name of a module that is no longer running.
        self._on_inactive: Callable[[str], None] | None = None

    def _maybe_set_engine_callback(self) -> None:
        """Once per backward pass: what is to happen when it ends."""
        if self._has_callback:
            return
        engine = torch.autograd.Variable._execution_engine
        for post_bw_callback in reversed(self._post_bw_callbacks_to_enqueue):
            engine.queue_callback(post_bw_callback)
        self._post_bw_callbacks_to_enqueue.clear()

        def callback() -> None:
            left_over, self.parents = self.parents, {"Global"}
            self._has_callback = False
            self._backward_done = True
            if self._on_inactive is not None:
                for name in left_over:
                    self._on_inactive(name)

        engine.queue_callback(callback)
        self._has_callback = True

    @property
    def is_bw(self) -> bool:
        """Whether this thread is inside a backward pass."""
        return _current_graph_task_id() != -1

    def get_known_fqn(self, mod: torch.nn.Module) -> str | None:
        """The name of `mod`, or None if the tracker has not met it."""
        met = self._names.get(id(mod))
        return met[1] if met is not None and met[0]() is mod else self._known_modules.get(mod)

    def register_user_hooks(
        self,
        pre_fw_hook: _Hook | None = None,
        post_fw_hook: _Hook | None = None,
        pre_bw_hook: _Hook | None = None,
        post_bw_hook: _Hook | None = None,
    ) -> None:
        """Sets the hooks that are called at every module boundary.

        They are called as pre_fw_hook(module, inputs), post_fw_hook(module, inputs, outputs),
        pre_bw_hook(module, grads of outputs) and post_bw_hook(module, grads of inputs). A module
        that died before its backward arrives as None. Hooks watch; they must not change what they
        see. Raises AssertionError for a hook whose place is taken; see `clear_user_hooks`.
        """

        def set_hook(hook: _Hook | None, user_hook: _Hook | None, hook_name: str) -> _Hook | None:
            if hook is not None and user_hook is not None:
                raise AssertionError(
                    f"a {hook_name} is already registered; call clear_user_hooks() first"
                )
            return hook

        self._user_pre_fw_hook = set_hook(pre_fw_hook, self._user_pre_fw_hook, "pre_fw_hook")
        self._user_post_fw_hook = set_hook(post_fw_hook, self._user_post_fw_hook, "post_fw_hook")
        self._user_pre_bw_hook = set_hook(pre_bw_hook, self._user_pre_bw_hook, "pre_bw_hook")
        self._user_post_bw_hook = set_hook(post_bw_hook, self._user_post_bw_hook, "post_bw_hook")

    def clear_user_hooks(self) -> None:
        """Takes away the hooks set by `register_user_hooks`."""
        self._user_pre_fw_hook = None
        self._user_post_fw_hook = None
        self._user_pre_bw_hook = None
        self._user_post_bw_hook = None

    @staticmethod
    @contextlib.contextmanager
    def compile_safe_hooks(
        model: torch.nn.Module,
        pre_fw_hook: BoundaryHook | None = None,
        post_fw_hook: PostForwardHook | None = None,
        pre_bw_hook: BoundaryHook | None = None,
        post_bw_hook: BoundaryHook | None = None,
        module_filter: ModuleFilter | None = None,
    ) -> Iterator[list[RemovableHandle]]:
        """Hooks on `model`'s submodules that also run inside torch.compile(fullgraph=True).

        Called as pre_fw_hook(fqn, inputs), post_fw_hook(fqn, inputs, outputs),
        pre_bw_hook(fqn, grads of outputs) and post_bw_hook(fqn, grads of inputs), with tuples of
        tensors; a gradient may be None. The root is skipped. `module_filter(fqn, module)` chooses
        modules. Needs no tracker, and touches none. Compiled regions need a torch with leaf
        functions, and the eager or aot_eager backend.
        """
        handles = hook_submodules(
            model, pre_fw_hook, post_fw_hook, pre_bw_hook, post_bw_hook, module_filter
        )
        try:
            yield handles
        finally:
            for handle in handles:
                handle.remove()

    def _get_mod_name(self, mod: torch.nn.Module) -> str:
        """The name of `mod`; on first sight names everything below it as well."""
        met = self._names.get(id(mod))
        if met is not None and met[0]() is mod:
            return met[1]
        name = self._learn_mod_name(mod)
        self._names[id(mod)] = (weakref.ref(mod), name)
        return name

    def _learn_mod_name(self, mod: torch.nn.Module) -> str:
        if mod not in self._known_modules:
            self._known_modules[mod] = type(mod).__name__
        mod_name = self._known_modules[mod]
        if mod not in self._seen_modules:
            self._names.clear()
            for name, child in mod.named_children():
                self._known_modules[child] = f"{mod_name}.{name}"
                self._learn_mod_name(child)
            self._seen_modules.add(mod)
        return mod_name

    def _append(self, name: str) -> None:
        if name not in self.parents:
            self._active_module_cnt[name] = 1
            self.parents.add(name)
            return
        if not self.is_bw:
            warnings.warn(
                f"module {name} is entered while it is already running; "
                "what is attributed to modules may be wrong",
                stacklevel=3,
            )
        self._active_module_cnt[name] += 1

    def _pop(self, name: str) -> None:
        if name in self.parents:
            self._active_module_cnt[name] -= 1
            if self._active_module_cnt[name] == 0:
                self.parents.remove(name)
                if self._on_inactive is not None:
                    self._on_inactive(name)
        elif not self.is_bw:
            # In backward an input or output without gradient leaves the nesting open; in forward
            # nothing may.
            raise RuntimeError(f"module {name} is left, but was never entered")

    def _get_append_fn(
        self, w_mod: Callable[[], torch.nn.Module | None], name: str, is_bw: bool
    ) -> _Hook:
        def fn(*args: Any) -> None:
            if is_bw:
                self._maybe_set_engine_callback()
            self._append(name)
            if is_bw and self._user_pre_bw_hook is not None:
                self._user_pre_bw_hook(w_mod(), args)

        return fn

    def _get_pop_fn(
        self, w_mod: Callable[[], torch.nn.Module | None], name: str, is_bw: bool
    ) -> _Hook:
        def fn(*args: Any) -> None:
            if is_bw and self._user_post_bw_hook is not None:
                self._user_post_bw_hook(w_mod(), args)
            self._pop(name)

        return fn

    def _fw_pre_hook(self, mod: torch.nn.Module, input: Any) -> None:
        if _in_compiled_module():
            return
        name = self._get_mod_name(mod)
        self._append(name)
        if self._user_pre_fw_hook is not None:
            self._user_pre_fw_hook(mod, input)
        if self.is_bw:
            return
        if self._backward_done and len(self.parents) == 2:
            # An outermost module, and no backward pass under way that could want older hooks.
            self._grad_hooks.clear_leaves()
            self._backward_done = False
        leave_bw = self._get_pop_fn(weakref.ref(mod), name, True)
        tensors = grad_tensors_in(input)
        if tensors:
            self._grad_hooks.on_all(tensors, leave_bw)
        elif torch.is_grad_enabled():
            self._post_bw_callbacks_to_enqueue.append(leave_bw)

    def _fw_post_hook(self, mod: torch.nn.Module, input: Any, output: Any) -> None:
        if _in_compiled_module():
            return
        name = self._get_mod_name(mod)
        if self._user_post_fw_hook is not None:
            self._user_post_fw_hook(mod, input, output)
        self._pop(name)
        if self.is_bw:
            return
        tensors = grad_tensors_in(output)
        if tensors:
            enter_bw = self._get_append_fn(weakref.ref(mod), name, True)
            self._grad_hooks.on_any(tensors, enter_bw)

    def __enter__(self) -> ModTracker:
        self._fw_pre_handle = register_module_forward_pre_hook(self._fw_pre_hook)
        self._fw_post_handle = register_module_forward_hook(self._fw_post_hook, always_call=True)
        return self

    def __exit__(self, *args: Any) -> None:
        self._fw_pre_handle.remove()
        self._fw_post_handle.remove()
        self._grad_hooks.clear_leaves()
