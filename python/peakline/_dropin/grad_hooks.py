"""Hooks on the gradients of a module's inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import register_multi_grad_hook
from torch.utils.hooks import RemovableHandle

from peakline._C import call_on_gradient


class GradHooks:
    """Sets hooks that live as long as the graph, and those on leaves no longer than that.

    A hook on a tensor inside the graph goes with it. A leaf outlives its graphs, so a batch that is
    used again and again would gather a hook per call: those are kept here, to be taken away.
    """

    def __init__(self) -> None:
        self._on_leaves: list[RemovableHandle] = []

    def on_all(self, tensors: Sequence[torch.Tensor], hook: Callable[[Any], None]) -> None:
        """Calls `hook(gradients)` once all of those that will come have come."""
        if len(tensors) > 1:
            self._keep(tensors, register_multi_grad_hook(tensors, hook))
        else:
            self._on_one(tensors[0], lambda grad: hook([grad]))

    def on_any(self, tensors: Sequence[torch.Tensor], hook: Callable[[Any], None]) -> None:
        """Calls `hook(gradient)` when the first comes."""
        if len(tensors) > 1:
            self._keep(tensors, register_multi_grad_hook(tensors, hook, mode="any"))
        else:
            self._on_one(tensors[0], hook)

    def _on_one(self, tensor: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
        if tensor.is_leaf:
            self._on_leaves.append(tensor.register_hook(hook))
        else:
            call_on_gradient(tensor, hook)

    def _keep(self, tensors: Sequence[torch.Tensor], handle: RemovableHandle) -> None:
        if any(tensor.is_leaf for tensor in tensors):
            self._on_leaves.append(handle)

    def clear_leaves(self) -> None:
        """Takes the hooks on leaves away."""
        for handle in self._on_leaves:
            handle.remove()
        self._on_leaves.clear()
