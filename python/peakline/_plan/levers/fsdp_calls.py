"""Calls of FSDP2's fully_shard, by whatever name a program imports it, and what changes them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from peakline._patches import Patches

# A change gets the module and the keywords of a call, and gives those of the call that is made;
# None: none is made.
Change = Callable[[Any, dict[str, Any]], dict[str, Any] | None]

_PLACES = (
    "torch.distributed.fsdp",
    "torch.distributed.fsdp._fully_shard",
    "torch.distributed.fsdp._fully_shard._fully_shard",
    "torch.distributed._composable.fsdp",
    "torch.distributed._composable.fsdp.fully_shard",
)


def change(patches: Patches, act: Change, before: Callable[..., None] | None = None) -> None:
    """`before` is called with each module and the call's keywords, and may shard its parts."""
    try:
        own: Any = importlib.import_module("torch.distributed.fsdp").fully_shard
    except (ImportError, AttributeError):  # a torch without distributed
        return

    def fully_shard(module: Any, **kwargs: Any) -> Any:
        changed = act(module, dict(kwargs))
        if changed is None:
            return module
        if before is not None:
            before(own, module, changed)
        return own(module, **changed)

    fully_shard.state = getattr(own, "state", None)  # type: ignore[attr-defined]
    for place in _PLACES:
        try:
            where = importlib.import_module(place)
        except ImportError:
            continue
        if callable(vars(where).get("fully_shard")):
            patches.set(where, "fully_shard", fully_shard)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """What is worth a unit each in a model that is one; of what is sharded already none."""
    from torch.distributed.fsdp import FSDPModule

    from peakline._plan.units import units_of

    if any(isinstance(inner, FSDPModule) for inner in model.modules()):
        return []
    return list(units_of(model).values())


def parts_of(unit: nn.Module) -> list[nn.Module]:
    """Children of a unit that are worth a unit each: with parameters and modules of their own."""
    from torch.distributed.fsdp import FSDPModule

    return [
        child
        for child in unit.children()
        if not isinstance(child, (FSDPModule, nn.ModuleList, nn.ModuleDict))
        and next(child.children(), None) is not None
        and next(child.parameters(), None) is not None
        and not any(isinstance(inner, FSDPModule) for inner in child.modules())
    ]
