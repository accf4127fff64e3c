"""ModTracker.compile_safe_hooks where parameters and inputs are DTensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from boundaries import logged_boundaries
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor, init_device_mesh

from peakline.mod_tracker import ModTracker

needs_leaf_functions = pytest.mark.skipif(
    not hasattr(torch._dynamo.decorators, "leaf_function"),
    reason="this torch has no leaf functions",
)


@pytest.fixture
def mesh() -> Iterator[Any]:
    torch._dynamo.reset()
    dist.init_process_group("fake", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()
    torch._dynamo.reset()


def spread(tensor: torch.Tensor, mesh: Any) -> DTensor:
    return distribute_tensor(tensor, mesh, [Replicate()])


def model_on(mesh: Any) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for module in model:
        for name, parameter in list(module.named_parameters()):
            setattr(module, name, nn.Parameter(spread(parameter.data, mesh)))
    return model


def test_an_eager_call_hands_the_hooks_its_dtensors(mesh: Any) -> None:
    model = model_on(mesh)
    seen = []

    def note(fqn: str, inputs: Any, outputs: Any) -> None:
        assert all(isinstance(tensor, DTensor) for tensor in (*inputs, *outputs))
        seen.append((fqn, tuple(inputs[0].shape), tuple(outputs[0].shape)))

    with ModTracker.compile_safe_hooks(model, post_fw_hook=note):
        model(spread(torch.randn(3, 4), mesh))
    assert seen == [("0", (3, 4), (3, 8)), ("1", (3, 8), (3, 8)), ("2", (3, 8), (3, 2))]


@needs_leaf_functions
def test_a_compiled_call_meets_every_boundary_and_changes_no_gradient(mesh: Any) -> None:
    model = model_on(mesh)
    value = torch.randn(3, 4)
    plain = spread(value.clone().requires_grad_(), mesh)
    model(plain).sum().backward()
    expected = [parameter.grad.full_tensor() for parameter in model.parameters()]
    model.zero_grad()

    with logged_boundaries(model) as log:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        compiled(spread(value.clone().requires_grad_(), mesh)).sum().backward()
        model.zero_grad()
        log.clear()
        compiled(spread(value.clone().requires_grad_(), mesh)).sum().backward()
    forward = [(kind, name) for name in "012" for kind in ("pre_fw", "post_fw")]
    assert log == forward + [(kind, name) for name in "210" for kind in ("pre_bw", "post_bw")]
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.full_tensor(), gradient)


def test_an_export_is_no_call(mesh: Any) -> None:
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    model = model_on(mesh)
    x = spread(torch.randn(3, 4, requires_grad=True), mesh)
    log: list[str] = []
    hooks = ModTracker.compile_safe_hooks(model, post_fw_hook=lambda fqn, i, o: log.append(fqn))
    with hooks, contextlib.ExitStack() as stack:
        exported = aot_export_joint_with_descriptors(stack, model, (x,))
    assert exported.graph_module is not None
    assert log == []
