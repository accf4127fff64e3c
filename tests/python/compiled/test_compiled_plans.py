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


BUDGET = "compile.activation_memory_budget"


def trained(compiles: bool) -> Any:
    def train() -> None:
        torch._dynamo.reset()
        layers = (
            nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in "ab"
        )
        model = nn.Sequential(*layers).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        run: Any = torch.compile(model) if compiles else model
        for _ in range(3):
            run(torch.randn(8192, 256, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return train


def test_budgets_of_the_compiler_are_tried_where_a_program_compiles() -> None:
    import torch._functorch.config as config

    found = peakline.plan(trained(True), memory="1GiB", levers=[BUDGET])
    peaks = {tuple(one["changes"]): one["peak_allocated"] for one in found.plans}
    assert len(peaks) == 4
    assert peaks[("activation_memory_budget 0.2",)] < peaks[()]
    assert config.activation_memory_budget == 1.0
    plain = peakline.plan(trained(False), memory="1GiB", levers=[BUDGET])
    assert [one["changes"] for one in plain.plans] == [[]]


def test_a_budget_that_is_no_share_is_refused() -> None:
    plan = {"schema_version": 1, "compile": {"activation_memory_budget": 2}}
    with pytest.raises(ValueError, match="takes a share from 0 to 1, and got 2"):
        peakline.checkpoint(nn.Linear(1, 1), plan)
