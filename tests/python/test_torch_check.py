"""A torch that does not fit is refused in one sentence, before anything of it is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import peakline
from peakline import _built_for

PROGRAM = Path(sysconfig.get_path("scripts")) / "peakline"
PACKAGE = Path(peakline.__file__).parent
BUILD_AGAIN = "build it again beside this torch, in peakline's sources: pip install"
NOT_FOUND = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"


def with_torch(folder: Path, source: str) -> dict[str, str]:
    """An environment in which `source` is torch."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(source)
    return {**os.environ, "PYTHONPATH": str(folder), "PEAKLINE_PYTHON": sys.executable}


def run(env: dict[str, str], *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def import_error(env: dict[str, str]) -> str:
    """What `import peakline` raises; nothing else may be in the way of reading it."""
    done = run(env, sys.executable, "-c", "import peakline")
    assert done.returncode == 1
    assert "During handling" not in done.stderr
    return done.stderr.splitlines()[-1].removeprefix("ImportError: ")


def test_another_torch_than_it_was_built_for(tmp_path: Path) -> None:
    env = with_torch(tmp_path, "__version__ = '2.15.0'")
    sentence = f"peakline was built for torch {_built_for.torch}, found 2.15.0: {BUILD_AGAIN}"
    assert import_error(env).startswith(sentence)


@pytest.mark.parametrize("version", ["2.10.2", "2.16.0a0+git123", "3.0", "unknown"])
def test_a_torch_that_is_not_supported(tmp_path: Path, version: str) -> None:
    env = with_torch(tmp_path, f"__version__ = {version!r}")
    sentence = f"peakline supports torch 2.11 to 2.15, found {version}: install one"
    assert import_error(env).startswith(sentence)


def test_no_torch_at_all(tmp_path: Path) -> None:
    sentence = "peakline needs torch 2.11 to 2.15, and this Python has none: install one"
    assert import_error(with_torch(tmp_path, NOT_FOUND)).startswith(sentence)


def test_an_extension_that_does_not_load_is_said_with_its_reason(tmp_path: Path) -> None:
    env = with_torch(tmp_path, f"__version__ = {_built_for.torch!r}")
    shutil.copytree(PACKAGE, tmp_path / "peakline", ignore=shutil.ignore_patterns("_C.*.so"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (tmp_path / "peakline" / f"_C{suffix}").write_text("no library")
    error = import_error(env)
    assert error.startswith(f"peakline's extension does not load beside torch {_built_for.torch} (")
    assert f"_C{suffix}" in error
    assert BUILD_AGAIN in error


@pytest.mark.parametrize("command", ["estimate", "run", "calibrate"])
def test_commands_that_need_torch_say_it_in_one_line(tmp_path: Path, command: str) -> None:
    done = run(with_torch(tmp_path, "__version__ = '2.15.0'"), PROGRAM, command, "train.py")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("peakline: peakline was built for torch ")
    assert done.stderr.count("\n") == 1


def test_commands_over_recordings_need_no_torch(tmp_path: Path) -> None:
    env = with_torch(tmp_path, NOT_FOUND)
    for start in ([PROGRAM], [sys.executable, "-m", "peakline"]):
        assert run(env, *start, "--version").returncode == 0
        done = run(env, *start, "show", "missing.peak")
        assert done.returncode == 2
        assert "missing.peak" in done.stderr
        assert run(env, *start, "estimate", "train.py").stderr.count("\n") == 1


def test_a_python_without_peakline_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    done = run({**os.environ, "PEAKLINE_PYTHON": str(python)}, PROGRAM, "run", "train.py")
    assert done.returncode == 1
    assert "has no peakline; set PEAKLINE_PYTHON" in done.stderr
    assert done.stderr.count("\n") == 1
