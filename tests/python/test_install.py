"""An installed peakline is what docs/install.md says: its size, what it needs, and its files."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import peakline
from peakline import _torch_check

PAGE = (Path(__file__).parents[2] / "docs/install.md").read_text()
INSTALLED = importlib.metadata.distribution("peakline")
EXTENSIONS = _torch_check.extensions()


def stated(row: str) -> str:
    """The second cell of a row of the page's tables."""
    found = re.search(rf"^\| {re.escape(row)} \| (.+?) \|$", PAGE, re.MULTILINE)
    assert found is not None, f"docs/install.md has no row {row!r}"
    return found[1]


def megabytes(row: str) -> float:
    found = re.match(r"([\d.]+) MB\b", stated(row))
    assert found is not None, f"{row!r} begins with no size: {stated(row)}"
    return float(found[1])


def files() -> list[Path]:
    """Everything that pip knows to be peakline's, less what Python compiled."""
    assert INSTALLED.files is not None
    paths = [Path(str(INSTALLED.locate_file(name))).resolve() for name in INSTALLED.files]
    return [path for path in paths if path.suffix != ".pyc"]


def libraries() -> dict[str, set[str]]:
    """What the loader looks for, by file."""
    found = {}
    for path in files():
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        printed = subprocess.run(
            ["readelf", "-d", path], capture_output=True, text=True, check=True
        ).stdout
        found[path.name] = set(re.findall(r"\(NEEDED\).*\[(.+)\]", printed))
    return found


def test_its_size_is_the_one_in_the_docs() -> None:
    if EXTENSIONS[0].whole_minor:
        expected = megabytes("A wheel, without extensions")
        expected += len(EXTENSIONS) * megabytes("Each extension of it")
    else:
        expected = megabytes("From the sources")
    size = sum(path.stat().st_size for path in files()) / 1e6
    # Another compiler makes a little more, or less; a library that came along would be seen.
    assert 0.75 * expected < size < 1.15 * expected


def test_it_needs_no_python_package() -> None:
    always = [line for line in INSTALLED.requires or [] if "extra ==" not in line]
    assert always == []
    assert stated("Python packages").startswith("none but torch")


def test_it_needs_the_libraries_in_the_docs_and_nothing_of_cuda() -> None:
    needed = libraries()
    own = set(needed)
    assert any(name.startswith("_C.") for name in own)
    assert "peakline" in own
    assert "peakline-planner" in own
    listed = set(re.findall(r"\b(?:lib|ld-)[\w+-]+\.so[.\d]*", stated("Libraries")))
    assert set().union(*needed.values()) - own <= listed
    assert not [name for name in listed if "cu" in name]
    # The program works on machines with neither torch nor Python.
    assert not [name for name in needed["peakline"] if "torch" in name or "python" in name]


def test_an_uninstall_leaves_no_file() -> None:
    package = Path(peakline.__file__).resolve().parent
    there = {path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert there - set(files()) == set()


def test_its_import_brings_nothing_slow_that_torch_has_not_brought() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import peakline; "
        "print(*(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    roots = {name.partition(".")[0] for name in done} - set(sys.stdlib_module_names)
    assert roots <= {"peakline", "torch"}
    slow = ("torch._dynamo", "torch._inductor", "torch.distributed.", "torch.fx.experimental")
    assert [name for name in done if name.startswith(slow)] == []
