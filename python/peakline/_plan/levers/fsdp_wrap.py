"""FSDP2: what a unit is: as in the script, each layer, their parts as well, or the whole model."""

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
    elif value == "layers":
        fsdp_calls.change(stage.patches, lambda module, kwargs: kwargs, _shard_layers)
    elif value == "model":
        fsdp_calls.change(stage.patches, _only_the_outermost)


def _shard_parts(fully_shard: Any, module: Any, kwargs: dict[str, Any]) -> None:
    for unit in module if isinstance(module, list) else [module]:
        if isinstance(unit, nn.Module) and outermost_module(unit) is not unit:
            for part in fsdp_calls.parts_of(unit):
                fully_shard(part, **kwargs)


def _shard_layers(fully_shard: Any, module: Any, kwargs: dict[str, Any]) -> None:
    if isinstance(module, nn.Module) and outermost_module(module) is module:
        for layer in fsdp_calls.layers_of(module):
            fully_shard(layer, **kwargs)


def _only_the_outermost(module: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    units = module if isinstance(module, list) else [module]
    return kwargs if all(outermost_module(unit) is unit for unit in units) else None


def _tries(facts: Facts) -> Sequence[str]:
    if facts.fsdp is None:
        return []
    if facts.fsdp.calls == 1:
        return ["layers"] if facts.fsdp.layers else []
    return ["parts"] if facts.fsdp.parts else []


_CHANGES = {
    "units": "units as they are",
    "layers": "each layer is an FSDP unit",
    "parts": "FSDP units are the parts of layers as well",
    "model": "the model is one FSDP unit",
}

LEVER = Lever(
    key="fsdp.wrap",
    takes="'units' (as the script has them), 'layers', 'parts' or 'model'",
    check=one_of(*_CHANGES),
    changes=lambda value: _CHANGES[value],
    paste=lambda value: {
        "units": [],
        "layers": ["fully_shard(layer, ...)  # each layer, before the model itself"],
        "parts": [
            "for part in layer.children():  # before the layer itself, where a part has modules",
            "    fully_shard(part, ...)",
        ],
        "model": ["fully_shard(model, ...)  # and none of its parts"],
    }[value],
    apply=_apply,
    tries=_tries,
)
