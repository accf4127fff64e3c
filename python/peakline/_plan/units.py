"""Which modules of a model are worth a decision of their own: its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from peakline._plan.facts import is_leaf

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def units_of(model: nn.Module) -> dict[str, nn.Module]:
    """By name, in the order of the model: siblings of one class that have parts of their own.

    A model without any has its children with parts.
    """
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()
    for name, module in _repeated(model, ""):
        if id(module) not in seen:  # shared layers have one name
            seen.add(id(module))
            found[name] = module
    if not found:
        found = {
            name: child
            for name, child in model.named_children()
            if not is_leaf(child) and not isinstance(child, (nn.ModuleList, nn.ModuleDict))
        }
    return {name: module for name, module in found.items() if _is_trained(module)}


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _is_container(module: nn.Module) -> bool:
    """A list of modules, and no more: what it holds is what counts."""
    return type(module) in _CONTAINERS and any(not is_leaf(child) for child in module.children())


def _repeated(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    children = [(f"{prefix}{name}", child) for name, child in module.named_children()]
    counts = Counter(type(child) for _, child in children if not is_leaf(child))
    in_list = isinstance(module, _CONTAINERS)
    for name, child in children:
        if is_leaf(child):
            continue
        if in_list and counts[type(child)] > 1 and not _is_container(child):
            yield name, child
        else:
            yield from _repeated(child, f"{name}.")


def shape_of(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Equal for modules that do the same: class, parameters, parts and what they are given."""
    parts = tuple(type(part).__qualname__ for part in module.modules())
    own = tuple((tuple(p.shape), str(p.dtype), p.requires_grad) for p in module.parameters())
    given = tuple(
        (tuple(x.shape), str(x.dtype))
        for x in tree_leaves((args, kwargs))
        if isinstance(x, torch.Tensor)
    )
    return parts, own, given, module.training
