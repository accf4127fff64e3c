"""Tensors in a module's arguments, with a short way for the usual flat ones."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in `value`, in pytree order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if type(value) is tuple:
        found = []
        for item in value:
            if isinstance(item, torch.Tensor):
                found.append(item)
            elif item is not None and not isinstance(item, (int, float, str)):
                break  # something nested: leave it to pytree
        else:
            return found
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def grad_tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in `value` that takes part in autograd."""
    return [tensor for tensor in tensors_in(value) if tensor.requires_grad]
