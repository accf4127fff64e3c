"""A plan in a program that compiles: what it wraps is compiled with the rest, as on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import peakline

WHOLE = {"modules": ["{0..2}"], "policy": "recompute"}
SELECTIVE = {**WHOLE, "policy": "selective", "keep": {"aten.addmm.default": [0]}}


def graphs(activations: list[dict[str, Any]]) -> list[int]:
    """Operations of each graph that Dynamo hands to a compiler, in a step."""
    found = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(len(graph.graph.nodes))
        return graph.forward

    with peakline.virtual_gpu("h200"):
        layers = (nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in "abc")
        model = nn.Sequential(*layers).cuda()
        peakline.checkpoint(model, {"schema_version": 1, "activations": activations})
        compiled = torch.compile(model, backend=backend)
        compiled(torch.rand(8, 64, device="cuda")).sum().backward()
    return found


@pytest.mark.parametrize("entry", [WHOLE, SELECTIVE], ids=["whole", "selective"])
def test_a_planned_model_is_one_graph(entry: dict[str, Any]) -> None:
    assert len(graphs([])) == 1
    assert len(graphs([entry])) == 1
