"""Scratch folders: those of killed processes are deleted by the next one, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from peakline import _scratch
from peakline._estimate.writes import kept_apart


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def killed(home: Path) -> Path:
    """What a process leaves that is killed while it has a folder."""
    source = (
        "import os, signal, tempfile\n"
        f"tempfile.tempdir = {str(home)!r}\n"
        "from peakline import _scratch\n"
        "folder = _scratch.make('writes')\n"
        "open(folder + '/model.pt', 'w').close()\n"
        "print(folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    return Path(done.stdout.strip())


def test_what_a_killed_process_left_is_deleted_by_the_next(home: Path) -> None:
    left = killed(home)
    assert left.is_dir()
    _scratch.sweep()
    assert not left.exists()


def test_what_a_living_process_has_stays(home: Path) -> None:
    with _scratch.folder("writes") as mine:
        _scratch.sweep()
        assert os.path.isdir(mine)
    assert not os.path.exists(mine)


def test_a_folder_that_is_locked_stays_whatever_its_number_says(home: Path) -> None:
    with _scratch.folder("writes") as mine:  # as a process of another container has it
        elsewhere = home / f"peakline-writes-{2**22 + 1}-elsewhere"
        os.rename(mine, elsewhere)
        _scratch.sweep()
        assert elsewhere.is_dir()


def test_links_and_folders_of_other_names_stay(home: Path) -> None:
    gone = 2**22 + 1  # more than any process has
    precious = home / "precious"
    precious.mkdir()
    (precious / "data").write_text("good")
    (home / f"peakline-writes-{gone}-link").symlink_to(precious)
    (home / f"peakline-writes-{gone}-file").write_text("good")
    (home / "peakline-writes-old").mkdir()
    inside = home / f"peakline-writes-{gone}-inside"
    inside.mkdir()
    (inside / "link").symlink_to(precious)
    _scratch.sweep()
    assert not inside.exists()
    assert (precious / "data").read_text() == "good"
    assert sorted(path.name for path in home.iterdir()) == [
        f"peakline-writes-{gone}-file",
        f"peakline-writes-{gone}-link",
        "peakline-writes-old",
        "precious",
    ]


def test_what_peakline_keeps_for_the_next_estimate_is_not_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "peakline" / "inductor" / "sources_of_torch.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("before")
    with kept_apart() as overlay:
        kept.write_text("after")
        (kept.parent / "graph.pkl").write_bytes(b"code")
        (tmp_path / "peakline-like.pkl").write_bytes(b"the script's")
    assert kept.read_text() == "after"
    assert (kept.parent / "graph.pkl").exists()
    assert overlay.redirected == [str(tmp_path / "peakline-like.pkl")]
