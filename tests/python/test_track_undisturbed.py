"""What tracking does beside the program's own calls never disturbs them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import peakline
from peakline.mem_tracker import MemTracker


class Secretive(torch.Tensor):
    """A wrapper whose parts are asked for in vain."""

    inner: torch.Tensor
    answer: Any = RuntimeError("it does not say")

    @staticmethod
    def __new__(cls, inner: torch.Tensor, answer: Any) -> Secretive:
        wrapper: Secretive = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )
        wrapper.inner = inner
        wrapper.answer = answer
        return wrapper

    def __tensor_flatten__(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @staticmethod
    def __tensor_unflatten__(inner: Any, ctx: Any, size: Any, stride: Any) -> Any:
        raise AssertionError

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(x: Any) -> Any:
            return x.inner if isinstance(x, Secretive) else x

        return func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))


ANSWERS = [
    RuntimeError("it does not say"),
    (["missing"], None),
    ([7], None),
    (),
    3,
    None,
]


class Takes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_a_subclass_that_does_not_say_what_is_inside_is_not_labelled(answer: Any) -> None:
    model = Takes()
    with peakline.track(model) as run:
        for _ in range(2):
            model(Secretive(torch.ones(8), answer)).sum().backward()
    assert {row.path: row.forward_calls for row in run.modules()} == {"Takes": 2}
    assert any("did not say what is inside" in warning for warning in run.warnings)


def test_a_secretive_parameter_or_state_does_not_disturb_training() -> None:
    model = Takes()
    model.register_buffer("hidden", Secretive(torch.ones(8), ANSWERS[0]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with peakline.track(model, optimizer) as run:
        for _ in range(3):
            model(torch.ones(8)).sum().backward()
            optimizer.step()
            optimizer.state[model.weight]["hidden"] = Secretive(torch.ones(8), ANSWERS[0])
    assert len(run.steps) == 3


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_memtracker_leaves_a_secretive_subclass_out(
    answer: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Takes()
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker:
        x = Secretive(torch.ones(8), answer)
        model(x).sum().backward()
        x.detach()
    assert tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Parameter"] == 32
    assert "Exception" not in capfd.readouterr().err


def test_no_python_error_is_left_behind_by_a_module_without_weak_references() -> None:
    with peakline.track() as run:
        Takes()(torch.ones(8))
        assert sys.exc_info() == (None, None, None)
    assert run.warnings == []


def test_another_librarys_init_subclass_is_called_and_put_back() -> None:
    made = []

    def init_subclass(cls: type[nn.Module], /, **kwargs: Any) -> None:
        super(nn.Module, cls).__init_subclass__(**kwargs)
        made.append(cls.__name__)

    theirs = classmethod(init_subclass)
    nn.Module.__init_subclass__ = theirs  # type: ignore[assignment]
    try:
        with peakline.track() as run:

            class Later(nn.Linear):
                pass

            Later(4, 4)(torch.ones(2, 4))
        assert vars(nn.Module)["__init_subclass__"] is theirs
        assert made == ["Later"]
        assert [row.path for row in run.modules()] == ["Later"]
    finally:
        del nn.Module.__init_subclass__


def test_an_error_in_a_users_backward_hook_arrives_as_itself() -> None:
    from peakline.mod_tracker import ModTracker

    tracker = ModTracker()

    def fail(module: Any, grads: Any) -> None:
        raise KeyError("as the test wants")

    tracker.register_user_hooks(pre_bw_hook=fail)
    model = nn.Linear(4, 4)
    with tracker, peakline.track(model), pytest.raises(KeyError, match="as the test wants"):
        model(torch.ones(2, 4)).sum().backward()
