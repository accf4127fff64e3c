"""Replaced attributes are put back exactly, in whatever order and over whatever others did."""

from __future__ import annotations

import os
import types
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.variable import Variable

import peakline
from peakline import _patches, _virtual_cuda
from peakline._patches import Patches


class Base:
    def method(self) -> str:
        return "base"


class Derived(Base):
    pass


def test_values_come_back_and_new_names_go_away() -> None:
    module: Any = types.ModuleType("module")
    module.old = 1
    patches = Patches()
    patches.set(module, "old", 2)
    patches.set(module, "old", 3)
    patches.set(module, "new", 4)
    assert (module.old, module.new) == (3, 4)
    patches.restore()
    assert module.old == 1
    assert not hasattr(module, "new")
    patches.restore()  # a second time changes nothing
    assert module.old == 1


def test_what_a_class_inherits_is_not_copied_into_it() -> None:
    patches = Patches()
    patches.set(Derived, "method", lambda self: "patched")
    assert Derived().method() == "patched"
    patches.restore()
    assert "method" not in vars(Derived)
    assert Derived().method() == "base"


def test_variables_of_the_environment_come_back_in_whatever_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEAKLINE_OLD", "before")
    monkeypatch.delenv("PEAKLINE_NEW", raising=False)
    first, second = Patches(), Patches()
    for patches, value in ((first, "one"), (second, "two")):
        patches.set(os.environ, "PEAKLINE_OLD", value)
        patches.set(os.environ, "PEAKLINE_NEW", value)
    first.restore()
    assert os.environ["PEAKLINE_OLD"] == "two"
    second.restore()
    assert os.environ["PEAKLINE_OLD"] == "before"
    assert "PEAKLINE_NEW" not in os.environ


def test_a_variable_that_the_program_set_since_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKLINE_OLD", "before")
    with Patches() as patches:
        patches.set(os.environ, "PEAKLINE_OLD", "ours")
        os.environ["PEAKLINE_OLD"] = "theirs"
    assert os.environ["PEAKLINE_OLD"] == "theirs"


def test_names_that_a_build_lacks_stay_absent() -> None:
    module: Any = types.ModuleType("module")
    patches = Patches()
    patches.set_where_present(module, "missing", 1)
    assert not hasattr(module, "missing")


def test_everything_is_put_back_although_a_last_action_fails() -> None:
    module: Any = types.ModuleType("module")
    patches = Patches()
    patches.set(module, "name", 1)
    patches.on_restore(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        patches.restore()
    assert not hasattr(module, "name")


@pytest.fixture
def module() -> Any:
    module: Any = types.ModuleType("module")
    module.name = "torch's"
    return module


def test_inside_out_each_end_shows_what_was_below(module: Any) -> None:
    with Patches() as outer:
        outer.set(module, "name", "outer")
        with Patches() as inner:
            inner.set(module, "name", "inner")
            assert module.name == "inner"
        assert module.name == "outer"
    assert module.name == "torch's"
    assert not _patches._in_place


def test_the_first_may_end_first(module: Any) -> None:
    first, second, third = Patches(), Patches(), Patches()
    for number, patches in enumerate((first, second, third)):
        patches.set(module, "name", number)
    second.restore()
    assert module.name == 2
    first.restore()
    assert module.name == 2
    third.restore()
    assert module.name == "torch's"


def test_the_first_may_end_first_where_nothing_was(module: Any) -> None:
    first, second = Patches(), Patches()
    first.set(module, "new", 1)
    second.set(module, "new", 1)  # even the same value
    first.restore()
    assert module.new == 1
    second.restore()
    assert not hasattr(module, "new")


def test_what_somebody_patched_over_ours_stays(module: Any) -> None:
    with Patches() as patches:
        patches.set(module, "name", "ours")
        module.name = "theirs"
    assert module.name == "theirs"


def test_what_somebody_deleted_stays_away(module: Any) -> None:
    with Patches() as patches:
        patches.set(module, "name", "ours")
        del module.name
    assert not hasattr(module, "name")


def test_theirs_between_two_of_ours_stays(module: Any) -> None:
    first, second = Patches(), Patches()
    first.set(module, "name", "first")
    module.name = "theirs"
    second.set(module, "name", "second")
    first.restore()
    second.restore()
    assert module.name == "theirs"


def test_an_exception_on_the_way_in_undoes_what_was_done(module: Any) -> None:
    def enter() -> None:
        with Patches() as patches:
            patches.set(module, "name", "ours")
            patches.set(1, "name", "impossible")

    with pytest.raises(TypeError):
        enter()
    assert module.name == "torch's"
    assert not _patches._in_place


def test_a_virtual_gpu_that_cannot_start_leaves_torch_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Variable._execution_engine
    available = torch.cuda.is_available

    def fail(*args: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(_virtual_cuda._replicated, "install", fail)
    with pytest.raises(RuntimeError, match="no"), peakline.virtual_gpu():
        pass
    assert Variable._execution_engine is engine
    assert torch.cuda.is_available is available
    assert not _patches._in_place


def test_track_puts_back_the_init_subclass_that_was_there_and_calls_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[type] = []
    theirs = classmethod(lambda cls, **kwargs: seen.append(cls))
    monkeypatch.setattr(nn.Module, "__init_subclass__", theirs, raising=False)
    with peakline.track():

        class Inside(nn.Module):
            pass

    assert seen == [Inside]
    assert vars(nn.Module)["__init_subclass__"] is theirs


def test_track_leaves_what_others_patched_while_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(*args: Any, **kwargs: Any) -> None: ...

    monkeypatch.setattr(FakeTensorMode, "from_tensor", FakeTensorMode.from_tensor)
    with peakline.track():
        FakeTensorMode.from_tensor = theirs  # type: ignore[method-assign]
    assert FakeTensorMode.from_tensor is theirs


def test_two_trackers_may_end_in_any_order() -> None:
    engine = Variable._execution_engine
    before = vars(torch.UntypedStorage).get("resize_")  # others may have left theirs
    first, second = peakline.track(), peakline.MemTracker()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert Variable._execution_engine is engine
    assert vars(torch.UntypedStorage).get("resize_") is before
    assert not _patches._in_place
