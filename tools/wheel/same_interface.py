"""Asks whether an extension that was built for one torch may be loaded beside another of its minor.

    python tools/wheel/same_interface.py build/wheel/torch-2.12 build/torch/2.12.0

Compares, byte for byte, the headers of torch that the extension was compiled with, less the one
that has the version's number, and looks for every symbol that it takes from torch's libraries.
Where no header differs and no symbol is missing, the other torch has laid out everything that the
extension knows of in the same way.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

VERSION = "torch/headeronly/version.h"
LIBRARIES = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")


def built_with(tree: Path) -> Path:
    """The folder with torch/ in it that a build tree was configured with."""
    cache = (tree / "CMakeCache.txt").read_text()
    found = re.search(r"^PEAKLINE_TORCH_ROOT:\w+=(.+)$", cache, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{tree} is not the build of a wheel's extension")
    return Path(found[1])


def headers(tree: Path, root: Path) -> set[str]:
    """Those of torch that the compiler read, as ninja has noted them."""
    listed = subprocess.run(
        ["ninja", "-C", tree, "-t", "deps"], capture_output=True, text=True, check=True
    ).stdout
    include = (root / "torch/include").resolve()
    read = {(tree / line.strip()).resolve() for line in listed.splitlines() if line[:1] == " "}
    return {str(path.relative_to(include)) for path in read if path.is_relative_to(include)}


def symbols(library: Path, which: str) -> set[str]:
    listed = subprocess.run(
        ["nm", "-D", "--format=just-symbols", which, library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {line.partition("@")[0] for line in listed.splitlines()}


def given(root: Path) -> set[str]:
    """What torch's libraries define."""
    return set().union(
        *(symbols(root / "torch/lib" / name, "--defined-only") for name in LIBRARIES)
    )


def main() -> int:
    tree, other = Path(sys.argv[1]), Path(sys.argv[2])
    root = built_with(tree)
    read = headers(tree, root) - {VERSION}
    different = sorted(
        name
        for name in read
        if not (there := other / "torch/include" / name).exists()
        or there.read_bytes() != (root / "torch/include" / name).read_bytes()
    )
    extension = next((tree / "python").glob("_torch/*/_C*.so"))
    taken = symbols(extension, "--undefined-only") & given(root)
    missing = sorted(taken - given(other))
    print(f"{len(read)} headers of torch were read, {len(different)} differ in {other}")
    print(f"{len(taken)} symbols are torch's, {len(missing)} are missing there")
    for name in (*different, *missing):
        print(f"  {name}")
    return 1 if different or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
