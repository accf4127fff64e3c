"""Every command of the README and of the quickstart works when it is pasted, in this order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": ".venv/bin/peakline ", "docs/quickstart.md": "peakline "}
BLOCKS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    lines = [line for block in BLOCKS.findall(text) for line in block.splitlines()]
    return [line for line in lines if line.startswith(PAGES[page])]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {page: tmp_path_factory.mktemp("page") for page in PAGES}
    for folder in made.values():
        (folder / "examples").symlink_to(ROOT / "examples")
    return made


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_commands(page: str) -> None:
    assert {"estimate", "fit", "run", "show", "simulate", "report", "diff", "check"} <= {
        shlex.split(line, comments=True)[1] for line in commands(page)
    }


@pytest.mark.parametrize(
    ("page", "line"), [(page, line) for page in PAGES for line in commands(page)]
)
def test_a_command_works(folders: dict[str, Path], page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    program = Path(sysconfig.get_path("scripts")) / "peakline"
    done = subprocess.run(
        [program, *words], cwd=folders[page], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_is_short_and_its_picture_is_of_the_demo() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 84  # half of what it once was
    demo = (ROOT / "Makefile").read_text()
    assert "estimate examples/llama.py -o build/demo.peak -- --size 8b --checkpoint" in demo
