"""`peakline.checkpoint` in real training on the CPU: the same losses, and only what was asked."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import peakline
from peakline._plan import selective


class OneOp(nn.Module):
    """Dropout as a GPU has it, in one op; nn.Dropout on a CPU draws in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, 0.3, self.training)[0]


class Block(nn.Module):
    def __init__(self, width: int, dropout: type[nn.Module]) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.drop = dropout()
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(self.drop(torch.nn.functional.gelu(self.up(x)))))


class Model(nn.Module):
    def __init__(self, layers: int = 4, width: int = 32, one_op: bool = False) -> None:
        super().__init__()
        dropout = OneOp if one_op else nn.Dropout
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.head = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


ALL = {"modules": ["layers.{0..3}"]}
PLANS: dict[str, list[dict[str, Any]]] = {
    "recompute": [{**ALL, "policy": "recompute"}],
    "two of four": [{"modules": ["layers.0", "layers.2"], "policy": "recompute"}],
    "keep products": [{**ALL, "policy": "selective", "keep": {"aten.addmm.default": "all"}}],
    "keep one call": [{**ALL, "policy": "selective", "keep": {"aten.addmm.default": [0]}}],
    "offload one call": [
        {
            **ALL,
            "policy": "selective",
            "keep": {"aten.addmm.default": [1]},
            "offload": {"aten.addmm.default": [0]},
        }
    ],
    "offload": [{**ALL, "policy": "offload"}],
}


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _everything_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of tests are small; offloading leaves small tensors where they are."""
    monkeypatch.setattr("peakline._plan.offload._SMALLEST", 1)


@pytest.fixture(params=["in C++", "in Python"])
def contexts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who keeps and recomputes."""
    if request.param == "in Python":
        monkeypatch.setattr(selective, "nobody_watches", lambda: False)
    return str(request.param)


def losses(
    plan: dict[str, Any] | None,
    compiled: str = "",
    optimizer: Callable[..., Any] = torch.optim.AdamW,
    give_optimizer: bool = False,
    one_op: bool = False,
) -> list[float]:
    torch.manual_seed(7)
    model = Model(one_op=one_op)
    stepping = optimizer(model.parameters(), lr=1e-2)
    if plan is not None:
        peakline.checkpoint(model, plan, stepping if give_optimizer else None)
    run: Any = torch.compile(model, backend=compiled) if compiled else model
    found = []
    for step in range(4):
        torch.manual_seed(100 + step)
        loss = run(torch.randn(16, 32)).pow(2).mean()
        loss.backward()
        stepping.step()
        stepping.zero_grad()
        found.append(loss.item())
    return found


def planned(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schema_version": 1, "model": "Model", "activations": entries}


@pytest.mark.parametrize("name", PLANS)
def test_losses_with_dropout_are_those_of_plain_training(name: str, contexts: str) -> None:
    assert losses(planned(PLANS[name])) == losses(None)


@pytest.mark.parametrize("name", ["recompute", "keep products", "keep one call"])
def test_compiled_losses_with_dropout_are_those_of_plain_compiled_training(name: str) -> None:
    torch._dynamo.reset()
    plain = losses(None, "aot_eager")
    torch._dynamo.reset()
    assert losses(planned(PLANS[name]), "aot_eager") == pytest.approx(plain, rel=1e-6)


class Broken(Block):
    """Dynamo cannot compile it as a whole, so its parts are compiled and it runs eagerly."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.up(x))
        torch._dynamo.graph_break()
        return x + self.drop(self.down(self.drop(y)))


@pytest.mark.parametrize("name", ["recompute", "keep products", "keep one call"])
def test_layers_that_are_compiled_in_parts_train_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "Block", Broken)
    plain = losses(None)
    assert losses(planned(PLANS[name]), "aot_eager") == pytest.approx(plain, rel=1e-6)


def test_a_result_is_found_again_whatever_it_is(contexts: str) -> None:
    """A view, a list, several results, and none that is defined."""

    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = torch.split(self.norm(x) ** 2, 4, dim=1)
            top, places = torch.sort(a * b, dim=1)
            return top.exp() + places + x[:, :4].sin().t().cos().t()

    ops = ("split.Tensor", "native_layer_norm.default", "sort.default", "t.default")
    keep = {f"aten.{op}": "all" for op in (*ops, "pow.Tensor_Scalar")}
    entry = {"modules": ["0"], "policy": "selective", "keep": keep}

    def gradients(plan: dict[str, Any] | None) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(Many())
        x = torch.randn(6, 8, requires_grad=True)
        if plan is not None:
            peakline.checkpoint(model, plan)
        model(x).pow(2).sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    planned_ones = gradients({"schema_version": 1, "activations": [entry]})
    for one, plain in zip(planned_ones, gradients(None), strict=True):
        assert torch.equal(one, plain)


def test_what_is_kept_may_not_be_changed_in_place_afterwards(contexts: str) -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.sigmoid(self.up(x)).mul_(2.0) ** 2)

    model = nn.Sequential(Changing())
    entry = {"modules": ["0"], "policy": "selective", "keep": {"aten.sigmoid.default": [0]}}
    peakline.checkpoint(model, {"schema_version": 1, "activations": [entry]})
    loss = model(torch.randn(2, 8)).sum()
    with pytest.raises(RuntimeError, match=r"changed in place .*aten.sigmoid.default"):
        loss.backward()


def calls_of_python(plan: dict[str, Any] | None) -> int:
    """Functions that one step calls, after one to warm up: what the host pays for a plan."""
    model = Model()
    if plan is not None:
        peakline.checkpoint(model, plan)
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event == "call"

    model(torch.randn(16, 32)).sum().backward()
    sys.setprofile(count)
    try:
        model(torch.randn(16, 32)).sum().backward()
    finally:
        sys.setprofile(None)
    return counted


def test_choosing_by_op_costs_the_host_no_call_of_python_for_an_op() -> None:
    chosen = calls_of_python(planned(PLANS["keep one call"]))
    whole = calls_of_python(planned(PLANS["recompute"]))
    assert chosen - whole <= 4 * 20  # for each layer


def test_modes_of_python_cost_a_few_calls_for_each_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch itself makes three of them. With its own contexts there were 2512 here."""
    monkeypatch.setattr(selective, "nobody_watches", lambda: False)
    whole = calls_of_python(planned(PLANS["recompute"]))
    chosen = calls_of_python(planned(PLANS["keep one call"]))
    model = Model()
    with CountAll() as count:
        model(torch.randn(16, 32))
    in_layers = count.calls - 1  # and what follows them
    assert chosen - whole <= 2 * 6 * in_layers + 4 * 40  # forward and again; 40 for each layer


class Forces(nn.Module):
    """Asks for a gradient in its forward, which is no part of what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            place = x.detach().requires_grad_()
            energy = self.down(torch.tanh(self.up(place))).sum()
            (force,) = torch.autograd.grad(energy, place, create_graph=True)
        return force + self.down(torch.tanh(self.up(x)))


@pytest.mark.parametrize("calls", [[0], [1], [0, 2], "all"])
def test_a_module_that_differentiates_in_its_forward_trains_the_same(
    calls: Any, contexts: str
) -> None:
    entry = {"modules": ["0"], "policy": "selective"}
    entry["keep"] = {"aten.addmm.default": calls, "aten.mm.default": "all"}

    def gradients(planned: bool) -> list[torch.Tensor]:
        torch.manual_seed(5)
        model = nn.Sequential(Forces(), nn.Linear(8, 8))
        if planned:
            peakline.checkpoint(model, {"schema_version": 1, "activations": [entry]})
        model(torch.randn(4, 8, requires_grad=True)).pow(2).sum().backward()
        return [p.grad for p in model.parameters()]

    for one, plain in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(one, plain)


def test_a_function_that_is_compiled_at_its_first_call_trains_the_same() -> None:
    """As flex attention is: what a compiler tries out is none of the module's ops."""

    class Lazily(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.compile(self.product, backend="aot_eager")(self.up(x))

        def product(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.sin(x) + 1.0)

    def trained(plan: dict[str, Any] | None) -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(7)
        model = nn.Sequential(Lazily(32, OneOp))
        if plan is not None:
            peakline.checkpoint(model, plan)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(3):
            loss = model(torch.randn(4, 32)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    entry = {"modules": ["0"], "policy": "selective", "keep": {"aten.addmm.default": "all"}}
    plan = {"schema_version": 1, "activations": [entry]}
    assert trained(plan) == pytest.approx(trained(None), rel=1e-6)


def test_modes_that_are_on_when_it_recomputes_see_what_is_computed() -> None:
    with_mode = Count(torch.ops.aten.gelu.default)
    model = peakline.checkpoint(Model(), planned(PLANS["keep products"]))
    loss = model(torch.randn(16, 32)).sum()
    with with_mode:
        loss.backward()
    assert with_mode.calls == 4


class CountAll(TorchDispatchMode):
    """How many ops ran."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


class Count(TorchDispatchMode):
    """How often an op ran."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self._op, self.calls = op, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is self._op
        return func(*args, **(kwargs or {}))


def products_in_backward(plan: dict[str, Any] | None) -> int:
    model = Model()
    if plan is not None:
        peakline.checkpoint(model, plan)
    loss = model(torch.randn(16, 32)).sum()
    with Count(torch.ops.aten.addmm.default) as count:
        loss.backward()
    return count.calls


class Pictures(nn.Module):
    def __init__(self, momentum: float | None) -> None:
        super().__init__()
        layers = [
            nn.Sequential(
                nn.Conv2d(4, 4, 3, padding=1),
                nn.BatchNorm2d(4, momentum=momentum),
                nn.ReLU(inplace=True),
                nn.InstanceNorm2d(4, track_running_stats=True),
            )
            for _ in range(3)
        ]
        layers[2][1].eval()  # its statistics are those of another training
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def trained_on_pictures(
    plan: dict[str, Any] | None, momentum: float | None, watched: bool, compiled: bool
) -> tuple[list[float], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Pictures(momentum)
    if plan is not None:
        peakline.checkpoint(model, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = torch.compile(model) if compiled else model
    losses = []
    for _ in range(3):
        x = torch.randn(2, 4, 6, 6)
        with NothingElse() if watched else contextlib.nullcontext():
            loss = run(x)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


class NothingElse(TorchDispatchMode):
    """Somebody who watches: torch's own checkpoint recomputes then."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("how", "momentum"),
    [("plain", 0.1), ("plain", None), ("watched", 0.1), ("watched", None), ("compiled", 0.1)],
)
@pytest.mark.parametrize("policy", ["recompute", "selective"])
def test_statistics_of_batches_count_each_batch_once(
    policy: str, how: str, momentum: float | None
) -> None:
    entry: dict[str, Any] = {"modules": ["layers.{0..2}"], "policy": policy}
    if policy == "selective":
        entry["keep"] = {"aten.convolution.default": "all"}
    plan = {"schema_version": 1, "activations": [entry]}
    watched, compiled = how == "watched", how == "compiled"
    losses, state = trained_on_pictures(None, momentum, watched, compiled)
    planned_losses, planned = trained_on_pictures(plan, momentum, watched, compiled)
    assert planned_losses == pytest.approx(losses, rel=1e-6 if compiled else 0)
    assert state["layers.0.1.num_batches_tracked"] == 3
    for name, value in state.items():
        torch.testing.assert_close(
            planned[name], value, rtol=1e-5 if compiled else 0, atol=1e-6 if compiled else 0
        )


def test_what_is_kept_is_not_computed_again() -> None:
    """A recomputation ends before the last product, whose result backward does not need."""
    assert products_in_backward(None) == 0
    assert products_in_backward(planned(PLANS["recompute"])) == 8
    assert products_in_backward(planned(PLANS["keep products"])) == 0
    assert products_in_backward(planned(PLANS["keep one call"])) == 4
    assert products_in_backward(planned(PLANS["offload one call"])) == 0
    assert products_in_backward(planned(PLANS["offload"])) == 0


def test_random_ops_are_kept_when_all_of_them_are() -> None:
    entry = {**ALL, "policy": "selective", "keep": {"aten.native_dropout.default": "all"}}
    assert losses(planned([entry]), one_op=True) == losses(None, one_op=True)


def test_ops_that_draw_random_numbers_go_together() -> None:
    """One kept and one recomputed would draw the other's numbers."""
    model = Model(one_op=True)
    entry = {**ALL, "policy": "selective", "keep": {"aten.native_dropout.default": [0]}}
    peakline.checkpoint(model, planned([entry]))
    with pytest.raises(RuntimeError, match="kept together or recomputed together"):
        model(torch.randn(16, 32))


def test_modules_keep_their_names_and_classes_and_evaluation_is_plain() -> None:
    model = Model()
    keys = list(model.state_dict())
    assert peakline.checkpoint(model, planned(PLANS["recompute"])) is model
    assert list(model.state_dict()) == keys
    assert type(model.layers[0]) is Block
    with torch.no_grad():
        assert not model(torch.randn(2, 32)).requires_grad


@pytest.mark.parametrize(
    "levers",
    [{"in_backward": True}, {"state": "host"}, {"implementation": "single"}],
    ids=["in backward", "state on the host", "single"],
)
def test_optimizers_of_a_plan_train_the_same(levers: dict[str, Any]) -> None:
    plan = {"schema_version": 1, "optimizer": levers}
    assert losses(plan, give_optimizer=True) == pytest.approx(losses(None), rel=1e-5)


def test_gradients_are_gone_after_each_parameter_when_the_optimizer_is_in_backward() -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    peakline.checkpoint(model, {"schema_version": 1, "optimizer": {"in_backward": True}}, optimizer)
    model(torch.randn(4, 32)).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert len(optimizer.state) == len(list(model.parameters()))
    assert "exp_avg" in optimizer.state_dict()["state"][0]


def test_accumulating_gradients_is_refused_when_the_optimizer_is_in_backward() -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    peakline.checkpoint(model, {"schema_version": 1, "optimizer": {"in_backward": True}}, optimizer)
    model(torch.randn(4, 32)).sum().backward()
    with pytest.raises(RuntimeError, match="several backwards for one step"):
        model(torch.randn(4, 32)).sum().backward()


def test_a_module_that_is_not_there_is_named_and_nothing_is_changed() -> None:
    model = Model()
    entries = [{"modules": ["layers.{0..4}"], "policy": "recompute"}]
    with pytest.raises(ValueError, match=r"Model has no module layers.4.* did you mean layers.\d"):
        peakline.checkpoint(model, planned(entries))
    assert "forward" not in vars(model.layers[0])


def test_a_model_is_planned_once() -> None:
    model = peakline.checkpoint(Model(), planned(PLANS["recompute"]))
    with pytest.raises(ValueError, match=r"layers.0 has been planned before"):
        peakline.checkpoint(model, planned(PLANS["recompute"]))


def test_an_optimizer_that_has_no_such_implementation_leaves_the_model_plain() -> None:
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters())
    plan = {**planned(PLANS["recompute"]), "optimizer": {"implementation": "fused"}}
    with pytest.raises(ValueError, match="LBFGS has no 'fused'"):
        peakline.checkpoint(model, plan, optimizer)
    assert "forward" not in vars(model.layers[0])


@pytest.mark.parametrize("name", PLANS)
def test_a_copy_of_a_planned_model_runs_its_own_layers(name: str) -> None:
    model = peakline.checkpoint(Model(), planned(PLANS[name]))
    copied = copy.deepcopy(model).eval()
    x = torch.randn(4, 32)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert torch.count_nonzero(copied(x)) == 0
    copied(x).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert copied.layers[0].up.weight.grad is not None


def test_a_planned_model_that_is_saved_as_a_whole_keeps_its_plan(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = peakline.checkpoint(Model().eval(), planned(PLANS["keep products"]))
    torch.save(model, tmp_path / "model.pt")
    again = torch.load(tmp_path / "model.pt", weights_only=False)
    x = torch.randn(4, 32)
    assert torch.equal(again(x), model(x))
    with pytest.raises(ValueError, match="planned before"):
        peakline.checkpoint(again, planned(PLANS["recompute"]))
