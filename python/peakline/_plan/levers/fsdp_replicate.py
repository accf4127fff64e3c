"""FSDP2: HSDP, in which groups of ranks are copies of each other and each group is sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from peakline._plan.facts import Facts
from peakline._plan.levers import fsdp_calls
from peakline._plan.levers.lever import Lever
from peakline._plan.stage import Stage


def _check(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**20


def _apply(value: int, stage: Stage) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    made: list[Any] = []

    def change(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        mesh, ranks = kwargs.get("mesh"), torch.distributed.get_world_size()
        if mesh is not None and (mesh.ndim != 1 or mesh.size() != ranks):
            stage.refuse("the script shards over a mesh of its own, so HSDP cannot be set for it")
        if ranks % value:
            stage.refuse(f"{ranks} ranks are not {value} groups of equal size")
        if not made:
            shape = (value, ranks // value)
            names = ("replicate", "shard")
            made.append(init_device_mesh("cuda", shape, mesh_dim_names=names))
        return {**kwargs, "mesh": made[0]}

    if value > 1:
        fsdp_calls.change(stage.patches, change)


def _tries(facts: Facts) -> Sequence[int]:
    if facts.fsdp is None or facts.fsdp.mesh_dims != 1:
        return []
    return [2] if facts.fsdp.world >= 4 and facts.fsdp.world % 2 == 0 else []


LEVER = Lever(
    key="fsdp.replicate",
    takes="the number of groups that are copies of each other",
    check=_check,
    changes=lambda value: f"HSDP with {value} copies" if value > 1 else "no HSDP",
    paste=lambda value: [
        f'mesh = init_device_mesh("cuda", ({value}, world_size // {value}), '
        'mesh_dim_names=("replicate", "shard"))',
        "fully_shard(module, ..., mesh=mesh)",
    ],
    apply=_apply,
    tries=_tries,
)
