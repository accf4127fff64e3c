"""`peakline check`, `diff`, `report` and `show --live` on recordings of a real model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import peakline

PROGRAM = shutil.which("peakline", path=sysconfig.get_path("scripts")) or "peakline"


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self, saves_memory: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(6))
        self.saves_memory = saves_memory

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.saves_memory else layer(x)
        return x


def record(path: Path, saves_memory: bool) -> Path:
    model = Net(saves_memory)
    optimizer = torch.optim.Adam(model.parameters())
    with peakline.track(model=model, optimizer=optimizer) as run:
        for _ in range(3):
            model(torch.randn(2048, 64, requires_grad=True)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    run.save(path)
    return path


def program(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [PROGRAM, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("recordings")
    return record(folder / "good.peak", True), record(folder / "bad.peak", False)


def test_a_checkpoint_call_that_is_gone_fails_the_check_and_is_named(
    recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    good, bad = recordings
    baseline = tmp_path / "memory.json"
    written = program("check", good, "--baseline", baseline, "--update")
    assert written.returncode == 0, written.stderr
    same = program("check", good, "--baseline", baseline, "--tolerance", "0%")
    assert same.returncode == 0, same.stdout

    worse = program("check", bad, "--baseline", baseline, "--tolerance", "1%")
    assert worse.returncode == 3
    assert worse.stdout.startswith("OVER  Peak allocated")
    assert re.search(r"^  Activation +.*\+\d", worse.stdout, re.MULTILINE)
    assert re.search(r"^  Net\.layers\.\*.*\(\d modules\) .*\+\d", worse.stdout, re.MULTILINE)
    assert "aten::gelu" in worse.stdout

    better = program("check", good, "--baseline", baseline_of(bad, tmp_path))
    assert better.returncode == 0
    assert "--update keeps it so" in better.stdout


def baseline_of(recording: Path, folder: Path) -> Path:
    path = folder / "other.json"
    assert program("check", recording, "--baseline", path, "--update").returncode == 0
    return path


def test_the_limit_lies_between_both(recordings: tuple[Path, Path]) -> None:
    good, bad = recordings
    peaks = [peakline.load(path).peak().bytes for path in recordings]
    assert peaks[0] < peaks[1]
    limit = str(sum(peaks) // 2)
    assert program("check", good, "--max", limit).returncode == 0
    over = program("check", bad, "--max", limit)
    assert over.returncode == 3
    assert "Alive at the peak, by category" in over.stdout


def test_the_diff_adds_up(recordings: tuple[Path, Path]) -> None:
    diff = json.loads(program("diff", *recordings, "--json", "-").stdout)
    peaks = [peakline.load(path).peak().bytes for path in recordings]
    assert diff["peak_allocated"]["change"] == peaks[1] - peaks[0]
    for part in ("categories", "modules", "module_groups", "ops"):
        assert sum(row["change"] for row in diff[part]) == peaks[1] - peaks[0], part


def test_the_report_is_one_file_that_loads_nothing(
    recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    done = program("report", recordings[0], "-o", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)


def test_the_live_view_follows_a_file_that_grows_and_ends_with_it(
    recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    content = recordings[1].read_bytes()
    growing = tmp_path / "growing.peak"
    view = subprocess.Popen(
        [PROGRAM, "show", growing, "--live"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with growing.open("wb") as file:
        for at in range(0, len(content), 1 + len(content) // 5):
            file.write(content[at : at + 1 + len(content) // 5])
            file.flush()
            assert view.poll() is None, "it waits for the end of the recording"
            time.sleep(0.05)
    out, _ = view.communicate(timeout=60)
    assert view.returncode == 0
    last = out.splitlines()[-1]
    run = peakline.load(recordings[1])
    assert ", 3 steps; cpu " in last
    assert f"{peakline.run.format_size(run.peak().bytes)} peak" in last


def test_the_live_view_waits_for_a_file_and_ends_when_asked(tmp_path: Path) -> None:
    view = subprocess.Popen(
        [PROGRAM, "show", tmp_path / "later.peak", "--live"], stderr=subprocess.PIPE, text=True
    )
    assert view.stderr is not None
    assert "waiting for" in view.stderr.readline()
    view.send_signal(2)
    assert view.wait(timeout=60) == 0
