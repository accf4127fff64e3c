"""ModTracker: who is running, in what order hooks come, and hooks inside torch.compile."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from boundaries import logged_boundaries
from torch import nn
from torch.utils.checkpoint import checkpoint

from peakline.mod_tracker import ModTracker

needs_leaf_functions = pytest.mark.skipif(
    not hasattr(torch._dynamo.decorators, "leaf_function"),
    reason="this torch has no leaf functions",
)
Seen = list[tuple[str, str | None, bool, bool]]


class Square(nn.Module):
    """Takes and gives a dictionary, and notes who runs, forward and backward."""

    def __init__(self, note: Any) -> None:
        super().__init__()
        self.note = note

    def forward(self, x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        y = x["a"].relu()
        self.note("fw")
        y.register_hook(lambda grad: self.note("bw"))
        return {"a": y @ y}


class Nested(nn.Module):
    def __init__(self, note: Any) -> None:
        super().__init__()
        self.first = nn.ModuleList([Square(note)])
        self.second = nn.ModuleDict({"inner": Square(note)})

    def forward(self, x: dict[str, torch.Tensor]) -> Any:
        return self.second["inner"](self.first[0](x))


class Chain(nn.Module):
    def __init__(self, layers: int, checkpointed: bool, reentrant: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
        self.checkpointed = checkpointed
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            if self.checkpointed and index > 0:
                x = checkpoint(layer, x, use_reentrant=self.reentrant)
            else:
                x = layer(x)
            x = x.relu()
        return x


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.act = nn.ReLU()
        self.down = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.up(x)))  # type: ignore[no-any-return]


def recording(tracker: ModTracker) -> Seen:
    seen: Seen = []

    def note(kind: str, module: nn.Module | None) -> None:
        name = tracker.get_known_fqn(module) if module is not None else None
        seen.append((kind, name, name in tracker.parents, tracker.is_bw))

    tracker.register_user_hooks(
        lambda m, i: note("pre_fw", m),
        lambda m, i, o: note("post_fw", m),
        lambda m, g: note("pre_bw", m),
        lambda m, g: note("post_bw", m),
    )
    return seen


def test_parents_name_the_running_modules_in_both_passes_of_every_iteration() -> None:
    seen = []
    with ModTracker() as tracker:
        model = Nested(lambda way: seen.append((way, set(tracker.parents), tracker.is_bw)))
        for _ in range(3):
            x = torch.randn(4, 4, requires_grad=True)
            model({"a": x * 1})["a"].sum().backward()
    first = {"Global", "Nested", "Nested.first.0"}
    second = {"Global", "Nested", "Nested.second.inner"}
    once = [("fw", first, False), ("fw", second, False), ("bw", second, True), ("bw", first, True)]
    assert seen == once * 3


def test_after_backward_only_global_is_left() -> None:
    with ModTracker() as tracker:
        nn.Linear(2, 2)(torch.rand(2, requires_grad=True)).sum().backward()
        assert not tracker.is_bw
        assert tracker.parents == {"Global"}


def test_hooks_come_in_order_while_the_module_is_in_parents() -> None:
    tracker = ModTracker()
    seen = recording(tracker)
    model = Chain(1, False)
    with tracker:
        model(torch.rand(2, 8, requires_grad=True)).sum().backward()
    fw = [("pre_fw", "Chain"), ("pre_fw", "Chain.layers.0")]
    fw += [("post_fw", "Chain.layers.0"), ("post_fw", "Chain")]
    bw = [("pre_bw", "Chain"), ("pre_bw", "Chain.layers.0")]
    bw += [("post_bw", "Chain"), ("post_bw", "Chain.layers.0")]
    assert [s[:2] for s in seen[:4]] == fw
    assert [s[:2] for s in seen[4:6]] == bw[:2]
    assert sorted(s[:2] for s in seen[6:]) == sorted(bw[2:])
    assert all(s[2] for s in seen)
    assert [s[3] for s in seen] == [False] * 4 + [True] * 4


def test_a_second_hook_in_one_place_is_refused_until_cleared() -> None:
    tracker = ModTracker()
    tracker.register_user_hooks(lambda m, i: None)
    with pytest.raises(AssertionError, match="pre_fw_hook"):
        tracker.register_user_hooks(lambda m, i: None, None, None, None)
    tracker.clear_user_hooks()
    tracker.register_user_hooks(lambda m, i: None)


def test_a_module_deleted_before_backward_arrives_as_none() -> None:
    tracker = ModTracker()
    seen = recording(tracker)
    with tracker:
        model = Chain(1, False)
        loss = model(torch.rand(2, 8, requires_grad=True)).sum()
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
        loss.backward()
    assert [s[1:] for s in seen[4:]] == [(None, False, True)] * 4


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_modules_run_forward_inside_backward(reentrant: bool) -> None:
    tracker = ModTracker()
    seen = recording(tracker)
    model = Chain(2, True, reentrant)
    with tracker:
        model(torch.randn(2, 8, requires_grad=True)).sum().backward()
    names = [(kind, name) for kind, name, _, backward in seen if backward]
    recompute = names.index(("pre_fw", "Chain.layers.1"))
    assert names[recompute + 1] == ("post_fw", "Chain.layers.1")
    assert names.index(("pre_bw", "Chain")) < recompute < names.index(("pre_bw", "Chain.layers.0"))
    assert all(inside for kind, _, inside, _ in seen if kind.endswith("fw"))


def test_modules_without_gradient_inputs_leave_at_the_end_of_backward() -> None:
    tracker = ModTracker()
    seen = recording(tracker)
    model = Chain(2, False)
    with tracker:
        model(torch.randn(2, 8)).sum().backward()
    assert [s[:2] for s in seen if s[0] == "post_bw"] == [
        ("post_bw", "Chain.layers.1"),
        ("post_bw", "Chain.layers.0"),
        ("post_bw", "Chain"),
    ]


def test_a_forward_without_gradients_waits_for_no_backward() -> None:
    with ModTracker() as tracker:
        model = Chain(2, False)
        with torch.no_grad():
            for _ in range(5):
                model(torch.randn(2, 8))
        assert tracker._post_bw_callbacks_to_enqueue == []


def test_a_batch_used_again_and_again_gathers_no_hooks() -> None:
    tracker = ModTracker()
    seen = recording(tracker)
    model = Chain(2, False)
    x = torch.randn(2, 8, requires_grad=True)
    with tracker:
        for _ in range(4):
            seen.clear()
            model(x).sum().backward()
    assert [kind for kind, *_ in seen].count("post_bw") == 3
    assert not x._backward_hooks


def test_retained_graphs_run_backward_twice() -> None:
    tracker = ModTracker()
    seen = recording(tracker)
    model = Chain(1, False)
    with tracker:
        loss = model(torch.randn(2, 8, requires_grad=True)).sum()
        loss.backward(retain_graph=True)
        once = [s for s in seen if s[3]]
        loss.backward()
    assert [s for s in seen if s[3]] == once * 2


def test_an_exception_in_forward_leaves_no_module_running() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("broken")

    with ModTracker() as tracker:
        with pytest.raises(KeyError):
            nn.Sequential(Broken())(torch.rand(2))
        assert tracker.parents == {"Global"}


ALL_EVENTS = ["pre_fw", "post_fw"], ["pre_bw", "post_bw"]
EXPECTED = [(kind, name) for name in ("up", "act", "down") for kind in ALL_EVENTS[0]] + [
    (kind, name) for name in ("down", "act", "up") for kind in ALL_EVENTS[1]
]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_leaf_functions)])
def test_compile_safe_hooks_see_every_boundary_and_change_no_gradient(compiled: bool) -> None:
    torch._dynamo.reset()
    model = Tiny()
    x = torch.randn(3, 4, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None
    expected, x.grad = x.grad, None
    with logged_boundaries(model) as log:
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        run(x).sum().backward()
    assert log == EXPECTED
    torch.testing.assert_close(x.grad, expected)
    log.clear()
    model(x).sum().backward()
    assert log == []


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_leaf_functions)])
def test_compile_safe_post_forward_gets_inputs_and_outputs_of_chosen_modules(
    compiled: bool,
) -> None:
    torch._dynamo.reset()
    model = Tiny()
    shapes = {}

    def note(fqn: str, inputs: Any, outputs: Any) -> None:
        shapes[fqn] = [tuple(t.shape) for t in inputs], [tuple(t.shape) for t in outputs]

    with ModTracker.compile_safe_hooks(
        model, post_fw_hook=note, module_filter=lambda fqn, module: isinstance(module, nn.Linear)
    ):
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        run(torch.randn(3, 4))
    assert shapes == {"up": ([(3, 4)], [(3, 8)]), "down": ([(3, 8)], [(3, 2)])}
