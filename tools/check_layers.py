"""Guards the borders between layers: fails when a file includes what its layer must not know.

    python tools/check_layers.py [ROOT]

core knows neither torch nor Python nor the layers above it; cli knows core; capture knows core and
torch, and Python in one folder alone; vgpu knows capture as well; libtorch, for C++ programs, knows
all of these and no Python; recompute knows torch alone; planner knows nobody, since cuDNN may end
its process; a public header reaches into no private folder. The longest folder that a file lies in
decides.
"""

import re
import subprocess
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
TORCH = ("torch/", "ATen/", "c10/", "caffe2/")
PYTHON = (
    "Python.h",
    "pybind11/",
    "torch/extension.h",
    "torch/python.h",
    "torch/csrc/autograd/python_",
    "torch/csrc/utils/device_lazy_init.h",
    "torch/csrc/utils/pybind.h",
)
PRIVATE = (
    "base/",
    "trace/",
    "ledger/",
    "report/",
    "diag/",
    "allocator/",
    "import/",
    "export/",
    "kernels/",
    "profile/",
    "planner_client/",
    "cost/",
    "checkpoint/",
    "text/",
)

# folder: what an include in it must not begin with, and why
RULES: dict[str, tuple[tuple[str, ...], str]] = {
    "core/include/": (
        (*TORCH, *PYTHON, *PRIVATE, "capture/", "vgpu/", "cli/", "planner/"),
        "public headers of core know the public words alone",
    ),
    "core/src/": (
        (*TORCH, *PYTHON, "capture/", "vgpu/", "cli/", "planner/"),
        "core knows neither torch nor Python, and the planner by its lines alone",
    ),
    "cli/": (
        (*TORCH, *PYTHON, *PRIVATE, "capture/", "vgpu/", "planner/"),
        "cli knows core's public words",
    ),
    "capture/": (
        (*PYTHON, "capture/python/", "vgpu/", "cli/", "planner/", "libtorch/", "fmt/"),
        "capture knows torch and core; what is Python's is in capture/python",
    ),
    "capture/python/": (
        ("vgpu/", "cli/", "planner/", "libtorch/", "fmt/"),
        "capture/python knows torch, Python and core",
    ),
    "vgpu/": (
        (*PYTHON, *PRIVATE, "capture/python/", "cli/", "planner/", "libtorch/", "fmt/"),
        "vgpu knows torch, capture and core's public words",
    ),
    "libtorch/": (
        (*PYTHON, *PRIVATE, "capture/python/", "cli/", "planner/", "fmt/"),
        "libtorch is for programs without Python",
    ),
    "libtorch/include/": (
        (*PYTHON, *PRIVATE, "capture/", "vgpu/", "cli/", "planner/", "libtorch/", "fmt/"),
        "public headers know torch and the public words alone",
    ),
    "recompute/": (
        (*PYTHON, *PRIVATE, "peakline/", "capture/", "vgpu/", "cli/", "planner/", "libtorch/"),
        "recompute knows torch alone",
    ),
    "planner/": (
        (*TORCH, *PYTHON, *PRIVATE, "peakline/", "capture/", "vgpu/", "cli/", "fmt/", "cudnn"),
        "the planner knows its own headers and JSON; cuDNN is opened when it is there",
    ),
    "tests/unit/": ((*TORCH, *PYTHON), "unit tests build without torch"),
    "fuzz/": ((*TORCH, *PYTHON, "capture/"), "fuzzers build without torch"),
}  # fmt: skip


def source_files(root: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "*.h", "*.cc", "*.def"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0 and listed.stdout:
        return [Path(line) for line in listed.stdout.splitlines()]
    return [
        path.relative_to(root) for path in root.rglob("*") if path.suffix in {".h", ".cc", ".def"}
    ]


def violations(root: Path) -> list[str]:
    found = []
    for path in sorted(source_files(root)):
        folders = [folder for folder in RULES if str(path).startswith(folder)]
        if not folders:
            continue
        forbidden, why = RULES[max(folders, key=len)]
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and match[1].startswith(forbidden):
                found.append(f"{path}:{number}: includes {match[1]}, but {why}")
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = violations(root)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
