"""Where FSDP2 keeps its hooks and parameter groups, over the versions of torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode


def param_groups(module: nn.Module) -> list[Any]:
    """The parameter groups of one FSDP module; a group may belong to several modules."""
    if not isinstance(module, FSDPModule):
        return []
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is not None:
        return list(groups)
    group = state._fsdp_param_group
    return [] if group is None else [group]


def hook_slots(module: nn.Module) -> Iterator[tuple[Any, int, bool]]:
    """FSDP's own forward hooks on `module`: the dictionary, the key there, and is it a pre-hook."""
    state: Any = module._get_fsdp_state()  # type: ignore[operator]
    keys = {
        handle.id
        for name in ("_pre_forward_hook_handle", "_post_forward_hook_handle")
        for handle in _single(getattr(state, name, None))
    }
    for hooks, is_pre in ((module._forward_pre_hooks, True), (module._forward_hooks, False)):
        for key in [key for key in hooks if key in keys]:
            yield hooks, key, is_pre


def _single(handle: Any) -> tuple[Any, ...]:
    """The handles in a handle; a group of modules has many in one."""
    if handle is None:
        return ()
    return tuple(getattr(handle, "handles", (handle,)))


class _WaitsInPlace(TorchDispatchMode):
    """A fake `wait_tensor` gives a new tensor; the real one gives its argument."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if DTensor in types:
            return NotImplemented  # it is to become local tensors first
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]
        return func(*args, **(kwargs or {}))


def waits_in_place() -> contextlib.AbstractContextManager[Any]:
    return _WaitsInPlace()  # type: ignore[no-untyped-call]
