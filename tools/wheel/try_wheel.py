"""Tries a wheel in an environment of its own: imports, the tour, tests, what an uninstall leaves.

    python tools/wheel/try_wheel.py dist/peakline-….whl torch==2.13.0 [--tests FILE...]

The environment is made anew and deleted afterwards; a CUDA build of torch brings gigabytes. Where
the name of an environment stands instead of torch's, which has torch already, it is taken and kept.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What the tests that may be named use.
TEST_PACKAGES = ["pytest>=8", "hypothesis>=6"]


def run(*words: str | Path, cwd: Path | None = None, **env: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **env},
        cwd=cwd or tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def import_cost(python: Path) -> float:
    """Milliseconds of processor time that it adds to `import torch`: medians of 15, interleaved."""
    lines = {"import torch": [], "import torch, peakline": []}  # type: dict[str, list[float]]
    for _ in range(15):
        for line, seen in lines.items():
            seen.append(
                float(run(python, "-c", f"import time; {line}; print(time.process_time())"))
            )
    alone, both = (statistics.median(seen) for seen in lines.values())
    return (both - alone) * 1000


def files_of(folder: Path) -> set[Path]:
    """What is installed, less what Python compiled of other packages while it ran."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def outside_the_cache(home: Path) -> list[str]:
    """What was written to a home folder, less peakline's cache."""
    paths = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    return sorted(str(path) for path in paths if path.parts[:2] != (".cache", "peakline"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("torch", help="what pip is to install, or an environment that has it")
    parser.add_argument("--tests", nargs="*", default=[], help="files of tests to run there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        environment = Path(args.torch).resolve()
        python = environment / "bin/python"
        if not python.exists():
            environment = Path(folder) / "environment"
            python = environment / "bin/python"
            run(sys.executable, "-m", "venv", environment)
            run(python, "-m", "pip", "install", "-q", args.torch, "numpy")
        before = files_of(environment)
        begin = time.monotonic()
        run(python, "-m", "pip", "install", "-q", args.wheel.resolve())
        seconds = time.monotonic() - begin
        new = files_of(environment) - before
        size = sum(path.stat().st_size for path in new if path.is_file())
        found = run(python, "-c", "import torch; print(torch.__version__)").strip()
        print(f"torch {found}: installed in {seconds:.1f} s, {size / 1e6:.1f} MB, {len(new)} files")
        # Every function that the extension calls is looked for now, not when it is called.
        run(python, "-c", "import peakline", LD_BIND_NOW="1")
        print(f"import: {import_cost(python):.0f} ms more than torch alone")
        tour = ROOT / "tools/docs/run_page.py"
        page = ROOT / "docs/tour.md"
        print(run(python, tour, page, "--python", python, HOME=str(home)).strip())
        written = outside_the_cache(home)
        if args.tests:
            packages = run(python, "-m", "pip", "list", "--format", "freeze")
            run(python, "-m", "pip", "install", "-q", *TEST_PACKAGES)
            print(run(python, "-m", "pytest", "-q", *args.tests, cwd=ROOT).strip().splitlines()[-1])
            extra = run(python, "-m", "pip", "list", "--format", "freeze").splitlines()
            names = [line.split("==")[0] for line in extra if line not in packages.splitlines()]
            if names:
                run(python, "-m", "pip", "uninstall", "-q", "-y", *names)
        run(python, "-m", "pip", "uninstall", "-q", "-y", "peakline")
        left = sorted(map(str, files_of(environment) - before)) + written
        if left:
            print(f"left behind: {left}", file=sys.stderr)
            return 1
        print("uninstalled: nothing left but the cache")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
