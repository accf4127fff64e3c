"""What memory is for, and whose it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import peakline
from track_models import Net, buffer_bytes, parameter_bytes, train_step


def adam_state_bytes(model: nn.Module) -> int:
    # Two moments of every parameter, and a float for its step.
    return 2 * parameter_bytes(model) + 4 * len(list(model.parameters()))


def test_categories_of_a_training_run_are_what_the_model_says() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    with peakline.track(model, optimizer) as run:
        for _ in range(3):
            loss = model(torch.randn(32, 64)).square().mean()
            loss.backward()
            optimizer.step()
            torch.empty(50_000_000, dtype=torch.uint8)  # so the peak is here
            optimizer.zero_grad()
    by_category = run.peak("cpu").by_category
    assert by_category["Parameter"] == parameter_bytes(model)
    assert by_category["Gradient"] == parameter_bytes(model)
    assert by_category["Optstate"] == adam_state_bytes(model)
    assert by_category["Buffer"] == buffer_bytes(model)
    assert sum(by_category.values()) == run.peak("cpu").bytes


def test_a_model_that_is_not_given_is_found_when_it_runs() -> None:
    with peakline.track() as run:
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        train_step(model, optimizer)
        model(torch.randn(32, 64)).sum().backward()
        torch.empty(50_000_000, dtype=torch.uint8)
    by_category = run.peak("cpu").by_category
    assert by_category["Parameter"] == parameter_bytes(model)
    assert by_category["Gradient"] == parameter_bytes(model)
    assert by_category["Optstate"] == adam_state_bytes(model)
    assert "Net.layers.0.up" in run.peak("cpu").by_module


def load_by_assignment(model: nn.Module) -> nn.Module:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    return model


def with_new_parameters(model: Net) -> nn.Module:
    for module in model.modules():
        for name, own in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(own.detach().clone()))
        for name, own in list(module.named_buffers(recurse=False)):
            setattr(module, name, own.clone())
    return model


@pytest.mark.parametrize(
    "replace", [load_by_assignment, with_new_parameters, nn.Module.double], ids=lambda f: f.__name__
)
def test_what_is_loaded_after_an_evaluation_is_the_models(replace: object) -> None:
    model = Net()
    with peakline.track(model) as run:
        with torch.no_grad():
            model.eval()(torch.randn(32, 64))
        assert callable(replace)
        replace(model)
        model.train()(torch.randn(32, 64).to(next(model.parameters()).dtype)).sum().backward()
        torch.empty(50_000_000, dtype=torch.uint8)
    peak = run.peak("cpu")
    assert peak.by_category["Parameter"] == parameter_bytes(model)
    assert peak.by_category["Buffer"] == buffer_bytes(model)
    up = model.layers[1].up
    assert peak.by_module["Net.layers.1.up"] >= parameter_bytes(up)


def test_module_paths_carry_the_bytes_of_their_own_parameters() -> None:
    model = Net(layers=2)
    with peakline.track(model) as run:
        torch.empty(1)
    by_module = run.peak("cpu").by_module
    assert by_module["Net"] == parameter_bytes(model) + buffer_bytes(model)
    assert by_module["Net.layers.1.up"] == parameter_bytes(model.layers[1].up)
    assert by_module["Net.norm"] == parameter_bytes(model.norm) + buffer_bytes(model.norm)


def test_activations_belong_to_the_module_that_made_them() -> None:
    model = nn.Sequential(nn.Linear(10, 100, bias=False), nn.Tanh())
    with peakline.track(model) as run:
        out = model(torch.randn(50, 10))
        torch.empty(1_000_000, dtype=torch.uint8)
        out.sum().backward()
    rows = {row.path: row for row in run.modules()}
    assert rows["Sequential.1"].by_category["Activation"] == 50 * 100 * 4


def test_backward_memory_belongs_to_the_module_whose_backward_runs() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow = nn.Linear(8, 8)
            self.wide = nn.Linear(8, 4000)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.wide(self.narrow(x)).sum(-1)

    model = Wide()
    with peakline.track(model) as run:
        model(torch.randn(4000, 8)).sum().backward()
    peak = run.peak("cpu")
    assert peak.phase == "backward"
    assert peak.module == "Wide.wide"


def test_inputs_of_the_root_module_are_inputs() -> None:
    model = nn.Linear(8, 8)
    with peakline.track(model) as run:
        x = torch.randn(1000, 8)
        y = {"nested": [torch.randn(500, 8)]}
        model(x)

        class Takes(nn.Module):
            def forward(self, arg: dict[str, list[torch.Tensor]]) -> torch.Tensor:
                return arg["nested"][0] + 1

        Takes()(y)
        torch.empty(1_000_000, dtype=torch.uint8)
    assert run.peak("cpu").by_category["Input"] == 1500 * 8 * 4


def test_one_models_output_given_to_another_is_not_an_input() -> None:
    first, second = nn.Linear(8, 1000), nn.Linear(1000, 8)
    with peakline.track([first, second]) as run:
        x = torch.randn(100, 8)
        hidden = first(x)
        out = second(hidden)
        torch.empty(1_000_000, dtype=torch.uint8)
        out.sum().backward()
    assert run.peak("cpu").by_category["Input"] == x.nbytes


def test_tied_parameters_are_counted_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(100, 16)
            self.head = nn.Linear(16, 100, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(x))

    model = Tied()
    with peakline.track(model) as run:
        model(torch.arange(10)).sum().backward()
        torch.empty(10_000_000, dtype=torch.uint8)
    assert run.peak("cpu").by_category["Parameter"] == 100 * 16 * 4
    assert run.peak("cpu").by_category["Gradient"] == 100 * 16 * 4


def test_frozen_parameters_have_no_gradients() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[0].requires_grad_(False)
    with peakline.track(model) as run:
        model(torch.randn(8, 64)).sum().backward()
        torch.empty(10_000_000, dtype=torch.uint8)
    assert run.peak("cpu").by_category["Parameter"] == parameter_bytes(model)
    assert run.peak("cpu").by_category["Gradient"] == parameter_bytes(model[1])


def test_shared_and_repeated_modules_are_one_module() -> None:
    class Repeats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(16, 16)
            self.b = self.a

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(self.a(x)))

    model = Repeats()
    with peakline.track(model) as run:
        for _ in range(2):
            model(torch.randn(4, 16)).sum().backward()
    rows = {row.path: row for row in run.modules()}
    assert rows["Repeats.a"].forward_calls == 6
    assert "Repeats.b" not in rows


def test_modules_made_during_forward_get_a_name() -> None:
    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Linear(4, 4)(x)

    model = Makes()
    with peakline.track(model) as run:
        for _ in range(3):
            model(torch.randn(2, 4))
    rows = {row.path: row for row in run.modules()}
    assert rows["Makes.Linear"].forward_calls == 3


def test_several_models_and_optimizers_keep_their_names() -> None:
    models = [Net(layers=1), Net(layers=2)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    with peakline.track(models, optimizers) as run:
        for _ in range(2):
            for model, optimizer in zip(models, optimizers, strict=True):
                train_step(model, optimizer)
    roots = [row.path for row in run.modules(depth=0)]
    assert roots == ["Net", "Net#2"]
    assert len(run.steps) == 2  # of the first optimizer


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations_belong_to_the_recomputing_module(reentrant: bool) -> None:
    model = Net(layers=3, reentrant=reentrant)
    plain = Net(layers=3)
    peaks = {}
    for name, net in {"checkpointed": model, "plain": plain}.items():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with peakline.track(net, optimizer) as run:
            for _ in range(2):
                x = torch.randn(256, 64, requires_grad=True)
                net(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert run.warnings == []
        peaks[name] = run.peak("cpu")
    assert peaks["checkpointed"].bytes < peaks["plain"].bytes
    assert peaks["checkpointed"].module.startswith("Net.layers.")


class Parts(nn.Module):
    """As a LightningModule: its parts are called, and it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64))
        self.scale = nn.Parameter(torch.ones(4096))

    def loss(self) -> torch.Tensor:
        return self.body(torch.randn(8, 64)).sum() * self.scale.sum()


def test_parts_of_a_model_that_is_never_called_itself_are_named_below_it() -> None:
    with peakline.track() as run:
        model = Parts()
        model.loss().backward()
        torch.empty(50_000_000, dtype=torch.uint8)
    by_module = run.peak("cpu").by_module
    assert by_module["Parts.body.0"] >= 2 * parameter_bytes(model.body[0])
    assert "Sequential" not in by_module


def test_a_part_that_was_taken_out_of_a_model_is_a_model_of_its_own() -> None:
    with peakline.track() as run:
        model = Parts()
        body = model.body
        del model.body
        body(torch.randn(8, 64)).sum().backward()
        torch.empty(50_000_000, dtype=torch.uint8)
    assert "Sequential.0" in run.peak("cpu").by_module
    assert "Parts" not in run.peak("cpu").by_module


def step_around_forward(model: Parts, optimizer: torch.optim.Optimizer) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model.loss()
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.empty(50_000_000, dtype=torch.uint8)


def test_parameters_of_a_model_that_first_runs_inside_a_step_are_the_models() -> None:
    with peakline.track() as run:
        model = Parts()
        step_around_forward(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert run.peak("cpu").by_module["Parts"] >= 2 * parameter_bytes(model)


def test_parameters_from_before_the_run_are_the_models_though_the_optimizer_was_seen_first() -> (
    None
):
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with peakline.track() as run:
        for _ in range(2):
            step_around_forward(model, optimizer)
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()  # memory that the run sees
    by_module = run.peak("cpu").by_module
    assert by_module["Sequential.0"] >= 2 * parameter_bytes(model.body[0])
