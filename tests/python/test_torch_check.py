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
from peakline import _torch_check

PROGRAM = Path(sysconfig.get_path("scripts")) / "peakline"
PACKAGE = Path(peakline.__file__).parent
BUILD_AGAIN = "build it again beside this torch, in peakline's sources: pip install"
BUILT = _torch_check.chosen.torch
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


# A release that this peakline is not for: another minor, which none of its extensions serves.
OTHER = next(
    version
    for version in ("2.11.99", "2.12.99", "2.13.99", "2.14.99", "2.15.99", "2.15.99a0")
    if not any(extension.fits(version) for extension in _torch_check.extensions())
)
ALL = ", ".join(extension.serves for extension in _torch_check.extensions())


def test_another_torch_than_it_was_built_for(tmp_path: Path) -> None:
    env = with_torch(tmp_path, f"__version__ = {OTHER!r}")
    error = import_error(env)
    assert error.startswith(f"peakline was built for torch {ALL}, found {OTHER}: ")
    assert BUILD_AGAIN in error


@pytest.mark.parametrize("version", ["2.10.2", "2.16.0a0+git123", "3.0", "unknown"])
def test_a_torch_that_is_not_supported(tmp_path: Path, version: str) -> None:
    env = with_torch(tmp_path, f"__version__ = {version!r}")
    sentence = f"peakline supports torch 2.11 to 2.15, found {version}: install one"
    assert import_error(env).startswith(sentence)


def built(version: str, whole_minor: bool = True) -> _torch_check.Extension:
    return _torch_check.Extension(Path(version), version, whole_minor)


WHEEL = [built("2.11.0+cu130"), built("2.13.0+cu130"), built("2.15.0+cu132")]


@pytest.mark.parametrize("found", ["2.13.0", "2.13.0+cpu", "2.13.1+cu126", "2.13.12"])
def test_an_extension_of_a_wheel_serves_every_release_of_its_minor(found: str) -> None:
    assert _torch_check.choose(found, WHEEL) is WHEEL[1]


def test_a_minor_that_a_wheel_lacks_is_told_with_those_that_it_has() -> None:
    with pytest.raises(ImportError) as error:
        _torch_check.choose("2.12.1", WHEEL)
    assert str(error.value).startswith(
        "peakline was built for torch 2.11, 2.13, 2.15, found 2.12.1: "
        f"install a release of one of those, or {BUILD_AGAIN}"
    )


@pytest.mark.parametrize("found", ["2.13.0a0+git12", "2.13.0.dev20260601+cpu", "2.13.1rc2"])
def test_what_comes_before_a_release_is_not_served_by_a_wheel(found: str) -> None:
    with pytest.raises(ImportError, match=r"was built for torch 2\.11, 2\.13, 2\.15, found"):
        _torch_check.choose(found, WHEEL)


@pytest.mark.parametrize("found", ["2.13.0", "2.13.0+cu130", "2.13.1+cpu"])
def test_a_build_from_sources_serves_its_very_torch_alone(found: str) -> None:
    there = [built("2.13.0+cpu", whole_minor=False)]
    assert _torch_check.choose("2.13.0+cpu", there) is there[0]
    with pytest.raises(ImportError) as error:
        _torch_check.choose(found, there)
    assert str(error.value).startswith(
        f"peakline was built for torch 2.13.0+cpu, found {found}: {BUILD_AGAIN}"
    )


def test_a_build_of_a_nightly_serves_that_nightly() -> None:
    nightly = "2.14.0.dev20261001+cpu"
    assert _torch_check.choose(nightly, [built(nightly, whole_minor=False)]).torch == nightly


def test_extensions_are_found_by_their_folders_the_oldest_first(tmp_path: Path) -> None:
    for minor in ("2.13", "2.9", "2.11"):
        (tmp_path / minor).mkdir()
        (tmp_path / minor / "built_for.json").write_text(
            f'{{"torch": "{minor}.0+cu130", "whole_minor": true}}'
        )
    (tmp_path / "2.12").mkdir()  # without the file nothing is known of it
    found = _torch_check.extensions(tmp_path)
    assert [extension.serves for extension in found] == ["2.9", "2.11", "2.13"]
    assert [extension.library.parent.name for extension in found] == ["2.9", "2.11", "2.13"]


def test_no_torch_at_all(tmp_path: Path) -> None:
    sentence = "peakline needs torch 2.11 to 2.15, and this Python has none: install one"
    assert import_error(with_torch(tmp_path, NOT_FOUND)).startswith(sentence)


def test_an_extension_that_does_not_load_is_said_with_its_reason(tmp_path: Path) -> None:
    env = with_torch(tmp_path, f"__version__ = {BUILT!r}")
    shutil.copytree(PACKAGE, tmp_path / "peakline", ignore=shutil.ignore_patterns("_C.*.so"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    library = _torch_check.chosen.library.relative_to(PACKAGE)
    (tmp_path / "peakline" / library).write_text("no library")
    error = import_error(env)
    assert error.startswith(f"peakline's extension does not load beside torch {BUILT} (")
    assert f"_C{suffix}" in error
    assert BUILD_AGAIN in error


@pytest.mark.parametrize("command", ["estimate", "run", "calibrate"])
def test_commands_that_need_torch_say_it_in_one_line(tmp_path: Path, command: str) -> None:
    done = run(with_torch(tmp_path, f"__version__ = {OTHER!r}"), PROGRAM, command, "train.py")
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
