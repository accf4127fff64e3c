"""Every block of docs/questions.md works when it is pasted, one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline

ROOT = Path(__file__).parents[2]
BLOCKS = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for language, text in BLOCKS.findall((ROOT / "docs/questions.md").read_text()):
        parts = text.splitlines() if language == "sh" else [text]
        found += [(language, part) for part in parts]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


class Program:
    """What stands for the reader's own training."""

    def __init__(self) -> None:
        self.model: nn.Module | None = None

    def train(self, batch: int) -> None:
        layers = [nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.Linear(2048, 1024))] * 2
        self.model = nn.Sequential(*layers).cuda()
        optimizer = torch.optim.AdamW(self.model.parameters())
        for _ in range(2):
            self.model(torch.randn(batch, 128, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    def evaluate(self, batch: int) -> None:
        assert self.model is not None
        self.model(torch.randn(batch, 128, 1024, device="cuda"))


def run_python(code: str, folder: Path) -> None:
    program = Program()
    names: dict[str, Any] = {
        **{"peakline": peakline, "torch": torch, "contextlib": contextlib, "json": json},
        **{"sqlite3": sqlite3, "train": program.train, "evaluate": program.evaluate},
    }
    before = os.getcwd()
    os.chdir(folder)
    try:
        exec(compile(code, "questions.md", "exec"), names)
    finally:
        os.chdir(before)


def run_shell(line: str, folder: Path) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] == "peakline"
    program = Path(sysconfig.get_path("scripts")) / "peakline"
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("language", "text"), blocks())
def test_a_block_of_the_questions_works(folder: Path, language: str, text: str) -> None:
    {"sh": run_shell, "python": run_python}[language](text, folder)


def test_every_question_of_both_lists_is_there() -> None:
    text = (ROOT / "docs/questions.md").read_text()
    first, second, third = re.split(r"^# The .*$", text, flags=re.MULTILINE)
    assert len(re.findall(r"^## ", first, re.MULTILINE)) == 5
    assert re.findall(r"^## (\d+)\.", second, re.MULTILINE) == [str(i) for i in range(1, 15)]
    assert re.findall(r"^## (\d+)\.", third, re.MULTILINE) == [str(i) for i in range(1, 12)]
