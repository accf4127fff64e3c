"""Helpers shared by the tools: a drop-in for torch.distributed._tools.common_utils."""

from __future__ import annotations

import warnings

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def get_untyped_storages(t: torch.Tensor) -> set[torch.UntypedStorage]:
    """The storages behind `t`; of a wrapper subclass, those of the tensors inside it."""
    storages = set()
    waiting = [t]
    while waiting:
        tensor = waiting.pop()
        if is_traceable_wrapper_subclass(tensor):
            names = tensor.__tensor_flatten__()[0]
            inner = (getattr(tensor, name) for name in names)
            waiting += [part for part in inner if isinstance(part, torch.Tensor)]
        elif hasattr(tensor, "untyped_storage"):
            storages.add(tensor.untyped_storage())
        else:
            warnings.warn(f"a {type(tensor)} has no storage to look at", stacklevel=2)
    return storages
