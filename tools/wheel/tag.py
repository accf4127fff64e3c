"""Gives a wheel the tag of the oldest Linux that it runs on, and says what it needs there.

    python tools/wheel/tag.py WHEEL DIST

The rules are auditwheel's: which versions of libc's and libstdc++'s symbols, and which libraries,
each manylinux has. torch's own libraries are there at run time. Any other, libcudart among them, is
an error.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import auditwheel
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

TORCHS = ("libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so")
LOADER = "ld-linux-x86-64.so.2"  # a part of glibc, which a library names that has thread-local data
MACHINE = "x86_64"


@dataclass
class Needs:
    """What the libraries and programs of a wheel want from the machine."""

    symbols: set[tuple[str, str]] = field(default_factory=set)  # ("GLIBC", "2.34")
    libraries: dict[str, set[str]] = field(default_factory=dict)  # by file: names of DT_NEEDED
    own: set[str] = field(default_factory=set)  # names of libraries inside

    @property
    def outside(self) -> set[str]:
        return set().union(*self.libraries.values()) - self.own

    def newest(self, name: str) -> str:
        versions = [version for owner, version in self.symbols if owner == name]
        return max(versions, key=_ordered, default="none")


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def needs(wheel: Path) -> Needs:
    found = Needs()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            if not data.startswith(b"\x7fELF"):
                continue
            found.own.add(Path(name).name)
            elf = ELFFile(io.BytesIO(data))
            found.libraries[name] = _needed(elf)
            found.symbols |= _versions(elf)
    return found


def _needed(elf: ELFFile) -> set[str]:
    section = elf.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        return set()
    return {tag.needed for tag in section.iter_tags("DT_NEEDED")}


def _versions(elf: ELFFile) -> set[tuple[str, str]]:
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return set()
    found = set()
    for file, symbols in section.iter_versions():
        if file.name not in TORCHS:
            found |= {tuple(symbol.name.split("_", 1)) for symbol in symbols}
    return {(pair[0], pair[1]) for pair in found if len(pair) == 2}


def policies() -> list[dict[str, Any]]:
    path = Path(auditwheel.__file__).parent / "policy/manylinux-policy.json"
    rules: list[dict[str, Any]] = json.loads(path.read_text())
    return [rule for rule in rules if rule["name"].startswith("manylinux")]


def allowed(rule: dict[str, Any], wanted: Needs) -> bool:
    there = rule["symbol_versions"].get(MACHINE, {})
    return wanted.outside <= {*rule["lib_whitelist"], *TORCHS, LOADER} and all(
        version in there.get(name, []) for name, version in wanted.symbols if name in there
    )


def main() -> int:
    wheel, dist = Path(sys.argv[1]), Path(sys.argv[2])
    wanted = needs(wheel)
    rule = next((rule for rule in policies() if allowed(rule, wanted)), None)
    if rule is None:
        print(
            f"no manylinux has what {wheel.name} needs: {sorted(wanted.outside)}", file=sys.stderr
        )
        return 1
    platform = f"{rule['name']}_{MACHINE}"
    tagged = subprocess.run(
        [sys.executable, "-m", "wheel", "tags", "--platform-tag", platform, str(wheel)],
        check=True, capture_output=True, text=True,
    ).stdout.split()[-1]  # fmt: skip
    dist.mkdir(exist_ok=True)
    shutil.copy(wheel.parent / tagged, dist)
    print(
        f"{dist / tagged}: {(dist / tagged).stat().st_size / 1e6:.1f} MB; needs "
        f"glibc {wanted.newest('GLIBC')}, libstdc++ {wanted.newest('GLIBCXX')}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
