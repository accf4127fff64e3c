"""Loads torch and the extension for it; refuses, in one sentence, what cannot work together.

There is one folder for each minor release of torch that this peakline was built for:
`_torch/2.13/` has the extension and `built_for.json`, which can be read without loading it.
A wheel has several and an extension of it serves every release of its minor; a build from
sources has one, for the very torch beside it.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_OLDEST = (2, 11)
_NEWEST = (2, 15)
_INSTALL = "install one, for example: pip install torch==2.13.0"
_BUILD = (
    "build it again beside this torch, in peakline's sources: "
    "pip install --force-reinstall --no-deps ."
)
_FOLDER = Path(__file__).parent / "_torch"


@dataclass(frozen=True)
class Extension:
    """What was built for one minor release."""

    folder: Path
    torch: str  # the version it was built against
    whole_minor: bool  # it is a wheel's: for all releases of the minor, CPU and CUDA builds

    @property
    def library(self) -> Path:
        return self.folder / f"_C{EXTENSION_SUFFIXES[0]}"

    @property
    def serves(self) -> str:
        """The version, or the minor, that it is for."""
        return ".".join(map(str, _series(self.torch))) if self.whole_minor else self.torch

    def fits(self, found: str) -> bool:
        if found == self.torch:
            return True
        # What comes before a release has a binary interface of its own.
        return self.whole_minor and _is_release(found) and _series(found) == _series(self.torch)


def _series(version: str) -> tuple[int, int]:
    try:
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        return 0, 0


def _is_release(version: str) -> bool:
    """As 2.13.0 and 2.13.1+cu130 are, and 2.13.0a0+git12 and 2.13.0.dev20260601 are not."""
    return all(part.isdigit() for part in version.split("+")[0].split("."))


def extensions(folder: Path = _FOLDER) -> list[Extension]:
    """Those that are installed, the oldest torch first."""
    found = []
    for path in folder.glob("*/built_for.json"):
        built = json.loads(path.read_text())
        found.append(Extension(path.parent, built["torch"], built["whole_minor"]))
    return sorted(found, key=lambda extension: _series(extension.torch))


def choose(found: str, built: list[Extension]) -> Extension:
    """The extension for torch `found`; raises ImportError where none fits."""
    if not _OLDEST <= _series(found) <= _NEWEST:
        raise ImportError(f"peakline supports torch 2.11 to 2.15, found {found}: {_INSTALL}")
    for extension in built:
        if extension.fits(found):
            return extension
    names = ", ".join(extension.serves for extension in built) or "none"
    advice = _BUILD
    if any(extension.whole_minor for extension in built):
        advice = f"install a release of one of those, or {_BUILD}"
    raise ImportError(f"peakline was built for torch {names}, found {found}: {advice}")


def _load(extension: Extension) -> None:
    """Makes the extension `peakline._C`, as if it lay in this folder."""
    spec = importlib.util.spec_from_file_location("peakline._C", extension.library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["peakline._C"] = module
    sys.modules["peakline"]._C = module  # type: ignore[attr-defined]


try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":  # something that torch itself wants
        raise
    raise ImportError(
        f"peakline needs torch 2.11 to 2.15, and this Python has none: {_INSTALL}"
    ) from None

# Before the extension is loaded: beside another torch it may load, and then do anything.
chosen = choose(torch.__version__, extensions())

try:
    _load(chosen)
except ImportError as error:
    raise ImportError(
        f"peakline's extension does not load beside torch {torch.__version__} ({error}): {_BUILD}"
    ) from None
