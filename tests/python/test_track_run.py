"""The Run: asked during, after, and from a file."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

import peakline
from peakline import _C
from track_models import Net, train_step


def test_a_run_can_be_asked_while_it_goes_on() -> None:
    with peakline.track() as run:
        a = torch.empty(1000, dtype=torch.uint8)
        assert run.peak().bytes == 1000
        b = torch.empty(500, dtype=torch.uint8)
        assert run.peak().bytes == 1500
        del a, b
    assert run.peak().bytes == 1500
    assert run.warnings == []


def test_what_is_saved_answers_the_same(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    with peakline.track(model, optimizer) as run:
        for _ in range(2):
            train_step(model, optimizer)
    run.save(tmp_path / "run.peak")
    again = peakline.load(tmp_path / "run.peak")
    assert again.peak() == run.peak()
    assert again.steps == run.steps
    assert again.modules() == run.modules()
    assert again.timeline() == run.timeline()
    assert str(again).splitlines()[1:] == str(run).splitlines()[1:]  # the first has its name
    assert json.loads(again.to_json())["peak_allocated"] == run.peak().bytes


def test_parts_sum_to_the_peak() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    with peakline.track(model, optimizer) as run:
        for _ in range(2):
            train_step(model, optimizer)
    peak = run.peak()
    assert sum(peak.by_category.values()) == peak.bytes
    rows = run.modules()
    outside = peak.bytes - sum(row.own for row in rows)
    assert outside >= 0
    roots = [row for row in rows if row.depth == 0]
    assert sum(row.peak for row in roots) == sum(row.own for row in rows)
    assert max(step.peak_allocated for step in run.steps) == peak.bytes
    assert max(point.highest for point in run.timeline()) == peak.bytes
    assert sum(op.at_peak for op in run.top(1000)) <= peak.bytes


def test_depth_limits_the_module_tree() -> None:
    model = Net(layers=2)
    with peakline.track(model) as run:
        model(torch.randn(2, 64))
    assert [row.path for row in run.modules(depth=0)] == ["Net"]
    assert all(row.path.count(".") <= 1 for row in run.modules(depth=1))
    assert len(run.modules()) > len(run.modules(depth=1))


def test_text_names_the_peak_and_its_categories() -> None:
    model = Net()
    with peakline.track(model) as run:
        model(torch.randn(8, 64)).sum().backward()
    text = str(run)
    assert text.startswith("this run, torch ")
    assert f"Peak allocated {peakline.run.format_size(run.peak().bytes):>12}" in text
    assert "Parameter" in text
    assert "Net" in text


def test_printing_a_recording_says_what_show_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Net()
    with peakline.track(model) as run:
        model(torch.randn(8, 64)).sum().backward()
    monkeypatch.chdir(tmp_path)
    run.save("run.peak")
    program = Path(sysconfig.get_path("scripts")) / "peakline"
    done = subprocess.run([program, "show", "run.peak"], capture_output=True, text=True, check=True)
    assert str(peakline.load("run.peak")) + "\n" == done.stdout


@pytest.mark.parametrize("size", [0, 1, -1, 1023, 1024, 10**6, -(2**31), 2**30 - 1, 2**40, 2**55])
def test_sizes_are_read_as_they_are_written(size: int) -> None:
    text = _C.format_size(abs(size))
    assert _C.format_size(-abs(size)) == (f"-{text}" if size else text)
    assert _C.parse_size(text) == pytest.approx(abs(size), rel=1e-3)


def test_what_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        peakline.load(tmp_path / "none.peak")
    (tmp_path / "text.peak").write_text("hello " * 100)
    with pytest.raises(ValueError, match="recording"):
        peakline.load(tmp_path / "text.peak")
