"""Replaced attributes are put back exactly."""

from __future__ import annotations

import types
from typing import Any

import pytest

from peakline._virtual_cuda._memory import nested
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._patches import Patches


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


def test_statistics_nest_by_their_dots() -> None:
    flat = {"a.all.current": 1, "a.all.peak": 2, "a.small.current": 3, "num_ooms": 4}
    assert nested(flat) == {
        "a": {"all": {"current": 1, "peak": 2}, "small": {"current": 3}},
        "num_ooms": 4,
    }


def test_a_note_is_kept_once() -> None:
    notes = Notes()
    for sentence in ("b", "a", "b"):
        notes.add(sentence)
    assert notes.sentences() == ["b", "a"]
