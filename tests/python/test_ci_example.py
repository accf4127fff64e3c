"""The script of examples/ci: a comment about memory, and a gate."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import nn

import peakline

FOLDER = Path(__file__).parents[2] / "examples/ci"


def record(path: Path, width: int) -> Path:
    with peakline.virtual_gpu("h100") as run:
        model = nn.Sequential(nn.Linear(512, width), nn.Linear(width, 512)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(64, 512, device="cuda")).sum().backward()
            optimizer.step()
    run.save(path)
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("ci")
    return record(folder / "base.peak", 4096), record(folder / "head.peak", 8192)


def comment(base: Path, head: Path, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, FOLDER / "memory_comment.py", base, head, "-o", output, *more]
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_growth_is_commented_and_fails_the_gate(
    recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    done = comment(*recordings, tmp_path / "comment.md")
    assert done.returncode == 3, done.stderr
    text = (tmp_path / "comment.md").read_text()
    assert "more than the 1% that are accepted" in text
    assert "| Peak reserved |" in text
    assert re.search(r"\| Optstate \| 32.* \| 64.* \| \+32.* MiB \|", text)
    assert "On NVIDIA H100" in text


def test_no_growth_passes(recordings: tuple[Path, Path], tmp_path: Path) -> None:
    done = comment(recordings[0], recordings[0], tmp_path / "comment.md")
    assert done.returncode == 0, done.stderr
    assert "### GPU memory: unchanged" in (tmp_path / "comment.md").read_text()


def test_less_memory_or_accepted_growth_passes(
    recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    assert comment(*reversed(recordings), tmp_path / "less.md").returncode == 0
    assert comment(*recordings, tmp_path / "more.md", "--tolerance", "200").returncode == 0


def test_a_file_that_is_no_recording_is_one_sentence(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.peak"
    wrong.write_text("hello")
    done = comment(wrong, wrong, tmp_path / "comment.md")
    assert done.returncode == 2
    assert "is not a peakline recording" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_workflow_calls_it_and_gates_on_its_exit_code() -> None:
    text = (FOLDER / "memory.yml").read_text()
    assert "memory_comment.py base.peak head.peak" in text
    assert "exit ${{ steps.compare.outputs.code }}" in text


def test_the_workflows_own_commands_estimate_both_sides_and_the_gate_fails(tmp_path: Path) -> None:
    """Its `run:` lines, as GitHub would run them: base and head differ by the batch."""
    text = (FOLDER / "memory.yml").read_text()
    estimates = re.findall(r"^ +- run: (cd \w+ && peakline estimate .*)$", text, re.MULTILINE)
    assert len(estimates) == 2
    example = (FOLDER.parent / "llama.py").read_text()
    batch = '"--batch", type=int, default='
    assert batch + "1" in example
    for side, size in (("base", 1), ("head", 8)):
        (tmp_path / side).mkdir()
        text = example.replace(f"{batch}1", f"{batch}{size}")
        (tmp_path / side / "train.py").write_text(text)
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    env = {**os.environ, "PATH": path, "TRAIN": "train.py", "GPU": "h100"}
    env["ARGS"] = "--size tiny --length 256"
    for line in estimates:
        subprocess.run(["bash", "-e", "-c", line], cwd=tmp_path, env=env, check=True)
    done = comment(tmp_path / "base.peak", tmp_path / "head.peak", tmp_path / "comment.md")
    assert done.returncode == 3, done.stderr
    assert "| Activation |" in (tmp_path / "comment.md").read_text()
