"""Every command of the README works when it is pasted, one after the other."""

from __future__ import annotations

import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ".venv/bin/peakline "
BLOCKS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    lines = [line for block in BLOCKS.findall(text) for line in block.splitlines()]
    return [line for line in lines if line.startswith(PROGRAM)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def test_the_readme_has_commands() -> None:
    assert {"estimate", "run", "show", "simulate", "report", "diff", "check", "export"} <= {
        shlex.split(line, comments=True)[1] for line in commands()
    }


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_readme_works(folder: Path, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    program = Path(sysconfig.get_path("scripts")) / "peakline"
    done = subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
