"""FSDP2: what a unit is: the script's units, their parts as well, or the whole model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from peakline._plan.facts import Facts
from peakline._plan.levers import fsdp_calls
from peakline._plan.levers.lever import Lever, one_of
from peakline._plan.stage import Stage
from peakline.track import outermost_module


def _apply(value: str, stage: Stage) -> None:
    if value == "parts":
        fsdp_calls.change(stage.patches, lambda module, kwargs: kwargs, _shard_parts)
    elif value == "model":
        fsdp_calls.change(stage.patches, _only_the_outermost)


def _shard_parts(fully_shard: Any, module: Any, kwargs: dict[str, Any]) -> None:
    for unit in module if isinstance(module, list) else [module]:
        if isinstance(unit, nn.Module) and outermost_module(unit) is not unit:
            for part in fsdp_calls.parts_of(unit):
                fully_shard(part, **kwargs)


def _only_the_outermost(module: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    units = module if isinstance(module, list) else [module]
    return kwargs if all(outermost_module(unit) is unit for unit in units) else None


def _tries(facts: Facts) -> Sequence[str]:
    if facts.fsdp is None or facts.fsdp.calls < 2:
        return []
    return ["parts"] if facts.fsdp.parts else []


_CHANGES = {
    "units": "units as they are",
    "parts": "FSDP units are the parts of layers as well",
    "model": "the model is one FSDP unit",
}

LEVER = Lever(
    key="fsdp.wrap",
    takes="'units' (as the script has them), 'parts' or 'model'",
    check=one_of(*_CHANGES),
    changes=lambda value: _CHANGES[value],
    paste=lambda value: {
        "units": [],
        "parts": [
            "for part in layer.children():  # before the layer itself, where a part has modules",
            "    fully_shard(part, ...)",
        ],
        "model": ["fully_shard(model, ...)  # and none of its parts"],
    }[value],
    apply=_apply,
    tries=_tries,
)
