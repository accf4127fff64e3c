"""Stand-ins of CUDA extensions that cannot be installed without a GPU.

A program that imports one which is not installed gets a module whose functions have results of the
real ones' shapes, and keep and need what the packages' sources do. They compute nothing.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._options import Options
from peakline._virtual_cuda._stand_ins import (
    _apex,
    _causal_conv1d,
    _flash_attn,
    _full_graphs,
    _mamba,
    _transformer_engine,
    _xformers,
)
from peakline._virtual_cuda._stand_ins._package import Package, Region

_NOTE = (
    "{names} not installed: a stand-in allocates as the package's source code says, and counts as "
    "modelled (--no-stand-ins turns it off)"
)


def _are(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


_SOURCES = (_flash_attn, _xformers, _apex, _transformer_engine, _causal_conv1d, _mamba)


def install(patches: Patches, notes: Notes, engine: Engine, options: Options) -> None:
    if not options.stand_ins:
        return
    region = Region(engine)
    packages = [source.package(region) for source in _SOURCES]
    finder: Any = _Finder(packages, notes)
    sys.meta_path.append(finder)  # the last one: what is installed is found before
    patches.on_restore(lambda: _remove(finder))
    _full_graphs.install(patches, notes, lambda: bool(finder.made))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, packages: Sequence[Package], notes: Notes) -> None:
        self._packages = {package.name: package for package in packages}
        self._notes = notes
        self.made: list[str] = []

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = self._packages.get(name.partition(".")[0])
        if package is None or name not in package.modules:
            return None
        if name == package.name and package.for_programs_only and _asked_by_a_library():
            return None  # libraries take it where it is there, and do without where it is not
        loader = _Loader(package, name, lambda: self._tell(name))
        return importlib.machinery.ModuleSpec(name, loader, is_package=package.is_package(name))

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        wanted = getattr(context, "name", None)
        for package in self._packages.values():
            same = (wanted or "").replace("-", "_") == package.name
            if same or (wanted is None and not package.for_programs_only):
                yield _Distribution(package)

    def _tell(self, name: str) -> None:
        self.made.append(name)
        names = sorted({made.partition(".")[0] for made in self.made})
        self._notes.put("stand-ins", _NOTE.format(names=_are(names)))


class _Loader(importlib.abc.Loader):
    def __init__(self, package: Package, name: str, tell: Callable[[], None]) -> None:
        self._package = package
        self._name = name
        self._tell = tell

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._package.modules[self._name])
        vars(module)["__getattr__"] = self._submodule
        self._tell()

    def _submodule(self, name: str) -> Any:
        """The real packages import theirs by themselves."""
        full = f"{self._name}.{name}"
        if full not in self._package.modules:
            raise AttributeError(f"peakline's stand-in of {self._name} has no {name}")
        return importlib.import_module(full)


class _Distribution(importlib.metadata.Distribution):
    """So that a program that asks for the version finds one."""

    def __init__(self, package: Package) -> None:
        self._package = package

    def read_text(self, filename: str) -> str | None:
        package = self._package
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
        return package.name if filename == "top_level.txt" else None

    def locate_file(self, path: Any) -> Any:
        return Path(path)


def _remove(finder: _Finder) -> None:
    sys.meta_path.remove(finder)
    for name in finder.made:
        sys.modules.pop(name, None)


def _asked_by_a_library() -> bool:
    """Whether who imports is itself an installed package."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if "importlib" not in filename and filename != __file__ and "_imports.py" not in filename:
            return _is_installed(filename)
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _is_installed(filename: str) -> bool:
    if "site-packages" in filename or "dist-packages" in filename:
        return True
    folders = (folder.rstrip("/") + "/" for folder in sys.path if folder)
    return any(filename.startswith(folder) and _has_packages(folder) for folder in folders)


@functools.cache
def _has_packages(folder: str) -> bool:
    """What `pip install --target` was given, by what it leaves there."""
    return any(Path(folder).glob("*.dist-info"))
