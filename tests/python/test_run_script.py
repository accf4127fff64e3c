"""`peakline run`: a script runs as it does without peakline, and its recording can be opened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import peakline

SCRIPT = """
    import sys
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(16, 64)
            self.down = nn.Linear(64, 16)

        def forward(self, x):
            return self.down(torch.relu(self.up(x)))

    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(int(sys.argv[1])):
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("arguments", sys.argv[1:], __name__, __file__)
"""


def run(
    folder: Path, *args: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "peakline._run_script", *args],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    return tmp_path


def test_an_unmodified_script_is_tracked_with_its_model_and_optimizer(folder: Path) -> None:
    done = run(folder, "train.py", "-o", "out.peak", "--", "3", "--flag")
    assert done.returncode == 0, done.stderr
    assert "arguments ['3', '--flag'] __main__ train.py" in done.stdout
    assert "wrote out.peak" in done.stderr
    recording = peakline.load(folder / "out.peak")
    assert len(recording.steps) == 3
    assert set(recording.peak("cpu").by_module) == {"Net", "Net.up", "Net.down"}
    assert recording.peak().by_category["Parameter"] == (16 * 64 + 64 + 64 * 16 + 16) * 4
    assert recording.info["command"] == "train.py 3 --flag"


def test_the_recording_is_named_after_the_script(folder: Path) -> None:
    assert run(folder, "train.py", "--", "1").returncode == 0
    assert (folder / "train.peak").exists()


def test_each_rank_writes_its_own_recording(folder: Path) -> None:
    run(folder, "train.py", "-o", "out.peak", "--", "1", env={"WORLD_SIZE": "4", "RANK": "2"})
    assert (folder / "out.2.peak").exists()


def test_a_module_runs_as_python_runs_it(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "train.py").write_text(textwrap.dedent(SCRIPT))
    done = run(folder, "-m", "package.train", "-o", "out.peak", "--", "2")
    assert done.returncode == 0, done.stderr
    assert "arguments ['2'] __main__" in done.stdout
    assert len(peakline.load(folder / "out.peak").steps) == 2


@pytest.mark.parametrize(("code", "status"), [("3", 3), ("None", 0), ("'no luck'", 1), ("True", 1)])
def test_the_scripts_own_exit_status_is_passed_on(folder: Path, code: str, status: int) -> None:
    (folder / "ends.py").write_text(f"import sys, torch\ntorch.empty(9)\nsys.exit({code})\n")
    done = run(folder, "ends.py")
    assert done.returncode == status
    assert peakline.load(folder / "ends.peak").peak().bytes == 36
    if code == "'no luck'":
        assert "no luck" in done.stderr


def test_an_exception_is_shown_as_python_shows_it(folder: Path) -> None:
    source = "import torch\n\ndef inner():\n    raise ValueError('broken')\n\ninner()\n"
    (folder / "fails.py").write_text(source)
    done = run(folder, "fails.py")
    plain = subprocess.run([sys.executable, "fails.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == plain.returncode == 1
    shown = [line for line in done.stderr.splitlines() if not line.startswith("peakline:")]
    assert [line.strip() for line in shown if "File" in line or "Error" in line] == [
        line.strip().replace(str(folder) + "/", "")
        for line in plain.stderr.splitlines()
        if "File" in line or "Error" in line
    ]
    assert (folder / "fails.peak").exists()


def test_a_killed_run_can_be_opened(folder: Path) -> None:
    source = """
        import time
        import torch
        kept = [torch.empty(1000, dtype=torch.uint8) for _ in range(10)]
        time.sleep(1.5)
        torch.empty(1)
        print("ready", flush=True)
        time.sleep(60)
    """
    (folder / "long.py").write_text(textwrap.dedent(source))
    process = subprocess.Popen(
        [sys.executable, "-m", "peakline._run_script", "long.py"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if peakline.load(folder / "long.peak").devices:
                break
        except ValueError:
            pass
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    recording = peakline.load(folder / "long.peak")
    assert recording.peak().bytes >= 10_000
    assert any("killed" in warning for warning in recording.warnings)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "either a script or -m"),
        (["no_such.py"], "cannot read 'no_such.py'"),
        (["train.py", "--lr", "1"], "after --"),
        (["train.py", "-m", "x"], "either a script or -m"),
        (["train.py", "-o", "no/such/folder/x.peak"], "cannot create"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_two(
    folder: Path, args: list[str], words: str
) -> None:
    done = run(folder, *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_reader_that_goes_away_early_is_no_error() -> None:
    program = (
        "import sys; from peakline import _script;"
        "sys.exit(_script.for_a_reader(lambda: print('x' * 1_000_000) or 0))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
