"""Files that are named on the command line are never written through a link."""

from __future__ import annotations

from pathlib import Path

import pytest

import peakline
from peakline import _new_file


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    link = tmp_path / "answer.json"
    link.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"):
        _new_file.write_text(link, "{}")
    assert precious.read_text() == "keep me"


def test_a_recording_is_not_saved_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    (tmp_path / "run.peak").symlink_to(precious)
    with peakline.track() as run:
        pass
    with pytest.raises(OSError, match="symbolic link"):
        run.save(tmp_path / "run.peak")
    assert precious.read_text() == "keep me"


def test_a_file_that_is_there_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text("a longer text than the next")
    _new_file.write_text(path, "{}")
    assert path.read_text() == "{}"
