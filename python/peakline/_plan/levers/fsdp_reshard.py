"""FSDP2: whether a unit's gathered parameters are freed after forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peakline._plan.facts import Facts
from peakline._plan.levers import fsdp_calls
from peakline._plan.levers.lever import Lever
from peakline._plan.stage import Stage


def _check(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, int) and 2 <= value <= 2**20)


def _apply(value: Any, stage: Stage) -> None:
    def change(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**kwargs, "reshard_after_forward": value}

    fsdp_calls.change(stage.patches, change)


def _tries(facts: Facts) -> Sequence[bool]:
    if facts.fsdp is None:
        return []
    return [True] if facts.fsdp.reshard is False else [False]


def _changes(value: Any) -> str:
    if isinstance(value, bool):
        return "resharded after forward" if value else "not resharded after forward"
    return f"resharded to {value} ranks after forward"


LEVER = Lever(
    key="fsdp.reshard_after_forward",
    takes="true, false, or the number of ranks to reshard to",
    check=_check,
    changes=_changes,
    paste=lambda value: [f"fully_shard(module, ..., reshard_after_forward={value})"],
    apply=_apply,
    tries=_tries,
)
