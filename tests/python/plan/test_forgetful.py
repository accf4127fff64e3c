"""Calls that are recomputed give the gradients of those that are not, whatever is around them."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import peakline
from peakline._plan import forgetful, selective

Loss = Callable[[nn.Module, torch.Tensor], torch.Tensor]


class Inner(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        y = self.drop(torch.tanh(self.up(x)))
        return self.down(y if scale is None else y * scale) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(16, 16), Inner(), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(self.first(x)))


POLICIES: dict[str, dict[str, Any]] = {
    "whole": {"policy": "recompute"},
    "products kept": {"policy": "selective", "keep": {"aten.addmm.default": "all"}},
}


@pytest.fixture(params=POLICIES)
def plan(request: pytest.FixtureRequest) -> dict[str, Any]:
    entry = {"modules": ["inner"], **POLICIES[request.param]}
    return {"schema_version": 1, "activations": [entry]}


def model_of(plan: dict[str, Any] | None) -> Net:
    torch.manual_seed(11)
    model = Net()
    return peakline.checkpoint(model, plan) if plan else model


def square(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).pow(2).mean()


def gradients(plan: dict[str, Any] | None, backward: Callable[[nn.Module], None]) -> list[Any]:
    model = model_of(plan)
    torch.manual_seed(12)
    backward(model)
    return [parameter.grad for parameter in model.parameters()]


def x() -> torch.Tensor:
    return torch.linspace(-1, 1, 64).view(4, 16)


def once(model: nn.Module) -> None:
    square(model, x()).backward()


def in_bfloat(model: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        loss = square(model, x())
    loss.backward()


def backward_in_bfloat(model: nn.Module) -> None:
    loss = square(model, x())
    with torch.autocast("cpu", torch.bfloat16):
        loss.backward()


def twice(model: nn.Module) -> None:
    loss = square(model, x())
    loss.backward(retain_graph=True)
    loss.backward()


def a_part_first(model: nn.Module) -> None:
    loss = square(model, x())
    torch.autograd.grad(loss, list(model.last.parameters()), retain_graph=True)
    torch.autograd.grad(loss, [model.inner.down.bias], retain_graph=True)
    loss.backward()


def of_gradients(model: nn.Module) -> None:
    given = x().requires_grad_()
    (slope,) = torch.autograd.grad(square(model, given), given, create_graph=True)
    slope.pow(2).sum().backward()


def accumulated(model: nn.Module) -> None:
    losses = [square(model, x() * n) for n in (1, 2, 3)]
    for loss in reversed(losses):
        loss.backward()


def around_torchs_own(model: nn.Module) -> None:
    square(lambda x: checkpoint(model, x, use_reentrant=False), x()).backward()


def with_random_numbers_in_between(model: nn.Module) -> None:
    loss = square(model, x())
    torch.rand(7)
    loss.backward()
    model.first.weight.grad += torch.rand(1)


WAYS = [
    once,
    in_bfloat,
    backward_in_bfloat,
    twice,
    a_part_first,
    of_gradients,
    accumulated,
    around_torchs_own,
    with_random_numbers_in_between,
]


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_plain_training(
    way: Callable[[nn.Module], None], plan: dict[str, Any]
) -> None:
    for one, plain in zip(gradients(plan, way), gradients(None, way), strict=True):
        assert torch.equal(one, plain)


def test_the_call_is_ours_unless_something_is_unusual() -> None:
    assert forgetful.is_usual()
    with torch.autograd.graph.save_on_cpu():
        assert not forgetful.is_usual()
    with torch.device("cpu"):
        assert not forgetful.is_usual()
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        assert not forgetful.is_usual()
    assert forgetful.is_usual()


def test_checkpoints_of_torchs_inside_train_the_same() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Inner(), Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = checkpoint(self.a, x, use_reentrant=False)
            return self.b(torch.sin(y))

    found = []
    for planned in (True, False):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(16, 16), Outer())
        if planned:
            entry = {"modules": ["1"], "policy": "recompute"}
            peakline.checkpoint(model, {"schema_version": 1, "activations": [entry]})
        torch.manual_seed(3)
        model(x()).pow(2).sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for one, plain in zip(*found, strict=True):
        assert torch.equal(one, plain)


def test_arguments_by_name_and_in_tuples_and_several_results() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(
            self, x: torch.Tensor, places: tuple[torch.Tensor, torch.Tensor], *, scale: torch.Tensor
        ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            y = self.inner(x * places[0], scale)
            return y, {"other": y.exp() * places[1]}

    found = []
    for planned in (True, False):
        torch.manual_seed(4)
        model = nn.Sequential()
        model.pair = Pair()
        if planned:
            entry = {"modules": ["pair"], "policy": "recompute"}
            peakline.checkpoint(model, {"schema_version": 1, "activations": [entry]})
        scale, place = torch.full((32,), 0.5, requires_grad=True), torch.ones(16)
        y, more = model.pair(x(), (place, place * 2), scale=scale)
        (y.sum() + more["other"].sum()).backward()
        found.append([scale.grad, *(parameter.grad for parameter in model.parameters())])
    for one, plain in zip(*found, strict=True):
        assert torch.equal(one, plain)


def planned_lambda(function: Callable[..., Any]) -> nn.Module:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    model = nn.Sequential(Odd())
    entry = {"modules": ["0"], "policy": "recompute"}
    return peakline.checkpoint(model, {"schema_version": 1, "activations": [entry]})


@pytest.mark.parametrize(
    ("sizes", "how"),
    [
        ((3, 2), r"number 0 was .*\[3\].* and is .*\[2\]"),
        ((3, None), "1 less were saved"),
    ],
)
def test_a_module_that_does_something_else_the_second_time_is_refused(
    sizes: tuple[Any, ...], how: str
) -> None:
    runs = itertools.cycle(sizes)

    def changing(x: torch.Tensor) -> torch.Tensor:
        size = next(runs)
        return x.sum() if size is None else x[:size].exp().sum()

    loss = planned_lambda(changing)(torch.ones(4, requires_grad=True))
    with pytest.raises(RuntimeError, match=f"recomputing Odd gave other tensors.*{how}"):
        loss.backward()


def test_an_argument_that_was_changed_in_place_is_refused() -> None:
    model = planned_lambda(lambda x: x.exp().sum())
    given = torch.ones(4, requires_grad=True)
    x = given * 2
    loss = model(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="an argument of Odd was changed in place"):
        loss.backward()


def test_a_forward_that_fails_leaves_nothing_behind(plan: dict[str, Any]) -> None:
    model = model_of(plan)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        model.inner(torch.ones(3, 5))
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert gradients(plan, once)[0].equal(gradients(None, once)[0])


def test_what_nobody_calls_backward_on_is_freed_at_once(plan: dict[str, Any]) -> None:
    """No cycle: without the garbage collector."""
    model = model_of(plan)
    gc.collect()
    gc.disable()
    try:
        given = x().requires_grad_() * 1
        seen = weakref.ref(given)
        loss = square(model, given)
        del given, loss
        assert seen() is None
    finally:
        gc.enable()


def test_random_numbers_after_it_are_those_of_plain_training(plan: dict[str, Any]) -> None:
    def drawn(planned: dict[str, Any] | None) -> float:
        model = model_of(planned)
        torch.manual_seed(9)
        once(model)
        return torch.rand(()).item()

    assert drawn(plan) == drawn(None)


@pytest.mark.parametrize("half", [False, True])
def test_a_virtual_gpu_allocates_as_with_torchs_checkpoint(
    half: bool, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def peaks() -> list[Any]:
        with peakline.virtual_gpu("h200"):
            model = model_of(plan).cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            found: list[Any] = []
            for _ in range(3):
                torch.cuda.reset_peak_memory_stats()
                with torch.autocast("cuda", torch.bfloat16, enabled=half):
                    loss = square(model, torch.randn(65_536, 16, device="cuda"))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                found.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
            return found

    ours = peaks()
    used = []
    monkeypatch.setattr(forgetful, "is_usual", lambda: bool(used.append(1)))
    assert peaks() == ours
    assert used
    monkeypatch.setattr(selective, "nobody_watches", lambda: False)
    assert peaks() == ours
