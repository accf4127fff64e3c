"""Brings what an extension is built with: the headers and libraries of a torch, not installed.

    python tools/wheel/unpack_torch.py 2.11 build/torch

Takes a minor or, to compare it with another of its minor, a release, and prints the version. It is
the CUDA build, which has the headers that a CPU build lacks; what is built with them loads beside
both. What is there already is not fetched again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

# The release to build with, for each minor. `===`: a CPU build (2.13.0+cpu) does not count as it.
RELEASES = {
    "2.11": "2.11.0",
    "2.12": "2.12.1",
    "2.13": "2.13.0",
    "2.14": "2.14.1",
    "2.15": "2.15.0",
}
# cuda_runtime_api.h and what it includes. Declarations alone: nothing of CUDA is linked.
CUDA_HEADERS = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88"]
WANTED = (
    "torch/include/",
    "torch/version.py",
    "torch/lib/libc10.so",
    "torch/lib/libtorch.so",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libtorch_python.so",
    "torchgen/packaged/ATen/native/native_functions.yaml",
)


def download(requirement: str, folder: Path) -> Path:
    """The wheel of a requirement, for this Python."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([*pip, "-d", folder, requirement], check=False)
    if done.returncode != 0:
        raise SystemExit(f"pip cannot download {requirement}")
    name = requirement.partition("=")[0].replace("-", "_")
    return next(folder.glob(f"{name}-{requirement.rpartition('=')[2]}-*.whl"))


def unpack(wheel: Path, wanted: tuple[str, ...], target: Path) -> None:
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.startswith(wanted)]
        archive.extractall(partial, members)
    partial.rename(target)
    wheel.unlink()


def main() -> int:
    asked, folder = sys.argv[1], Path(sys.argv[2])
    version = RELEASES.get(asked, asked)
    if version.rpartition(".")[0] not in RELEASES:
        print(f"wheels have {', '.join(RELEASES)} of torch, not {asked}", file=sys.stderr)
        return 2
    wheels = folder / "wheels"
    root = folder / version
    if not root.exists():
        unpack(download(f"torch==={version}", wheels), WANTED, root)
    for requirement in CUDA_HEADERS:
        headers = folder / requirement.partition("=")[0]
        if not headers.exists():
            unpack(download(requirement, wheels), ("nvidia/",), headers)
    print(version)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
