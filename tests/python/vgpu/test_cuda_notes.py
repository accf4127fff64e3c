"""Small parts of the virtual torch.cuda."""

from __future__ import annotations

from peakline._virtual_cuda._memory import nested
from peakline._virtual_cuda._notes import Notes


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
