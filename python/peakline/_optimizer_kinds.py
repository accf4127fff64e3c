"""How torch's optimizers go over their parameters: which ways each has, and which it takes."""

from __future__ import annotations

from torch.optim.optimizer import Optimizer

_NEEDS = {"fused": "fused", "foreach": "foreach", "single": "foreach"}


def kinds_of(optimizer: Optimizer) -> list[str]:
    """Of "fused", "foreach" and "single", those that it has for its parameters."""
    kinds = [kind for kind, flag in _NEEDS.items() if flag in optimizer.defaults]
    if "fused" in kinds and not _can_fuse(optimizer):
        kinds.remove("fused")
    return kinds


def kind_of(optimizer: Optimizer) -> str:
    """The one that it takes on a GPU; "" for an optimizer with a way of its own."""
    flags = optimizer.defaults
    if flags.get("fused"):
        return "fused"
    if flags.get("foreach") is False:
        return "single"
    return "foreach" if "foreach" in flags else ""


def is_fusable(optimizer: Optimizer) -> bool:
    """It runs as foreach, whose temporaries a fused one does not have."""
    return kind_of(optimizer) == "foreach" and "fused" in kinds_of(optimizer)


def _can_fuse(optimizer: Optimizer) -> bool:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return all(p.is_floating_point() and p.device.type in ("cuda", "cpu") for p in parameters)
