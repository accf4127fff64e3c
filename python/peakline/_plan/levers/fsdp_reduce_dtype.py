"""FSDP2: the type in which gradients are reduced. It changes the numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from peakline._plan.facts import Facts
from peakline._plan.levers import fsdp_calls
from peakline._plan.levers.lever import Lever, one_of
from peakline._plan.stage import Stage

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def _apply(value: str, stage: Stage) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    def change(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        policy = kwargs.get("mp_policy") or MixedPrecisionPolicy()
        return {**kwargs, "mp_policy": dataclasses.replace(policy, reduce_dtype=DTYPES[value])}

    fsdp_calls.change(stage.patches, change)


def _tries(facts: Facts) -> Sequence[str]:
    if facts.fsdp is None:
        return []
    now = facts.fsdp.reduce_dtype or facts.fsdp.param_dtype
    return [name for name in ("float32", "bfloat16") if f"torch.{name}" != now]


LEVER = Lever(
    key="fsdp.reduce_dtype",
    takes=", ".join(f"'{name}'" for name in DTYPES),
    check=one_of(*DTYPES),
    changes=lambda value: f"gradients reduced in {value}",
    paste=lambda value: [
        f"fully_shard(module, ..., mp_policy=MixedPrecisionPolicy(..., reduce_dtype=torch.{value}))"
    ],
    apply=_apply,
    tries=_tries,
    keeps_numbers=False,
)
