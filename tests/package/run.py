"""Core as other people's C++ programs meet it: installed, found, built against and run.

    python run.py --build FOLDER --maker MAKE_RECORDING [--flags FLAGS]

Installs the build in FOLDER, then builds examples/cpp/peak.cc as a project of its own, with the
static library and with the shared one, and runs it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def run(*command: str, expect: int = 0, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode != expect:
        sys.exit(f"{' '.join(command)}\nexit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def expect(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"package: {what}")


def install(build: str, prefix: Path) -> None:
    run("cmake", "--install", build, "--prefix", str(prefix), "--component", "cpp")
    there = {path.name for path in (prefix / "include" / "peakline").iterdir()}
    ours = {path.name for path in (ROOT / "core" / "include" / "peakline").iterdir()}
    expect(ours <= there, f"headers are missing: {sorted(ours - there)}")


def build_project(folder: Path, prefix: Path, kind: str, flags: str) -> Path:
    source, out = folder / "source", folder / (kind or "default")
    source.mkdir(exist_ok=True)
    shutil.copy(HERE / "CMakeLists.txt", source)
    shutil.copy(ROOT / "examples" / "cpp" / "peak.cc", source)
    run("cmake", "-S", str(source), "-B", str(out), "-G", "Ninja", f"-DKIND={kind}",
        f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={flags}")  # fmt: skip
    run("cmake", "--build", str(out))
    return out / "peak"


def check_program(program: Path, recording: Path) -> None:
    said = run(str(program), str(recording), "max_split_size_mb:32")
    expect(bool(re.search(r"^cuda:0 +\d", said, re.M)), f"no peak of the device in\n{said}")
    expect("layers" in said, f"no modules in\n{said}")
    expect(bool(re.search(r"max_split_size_mb:32 +[\d.]+ \w?i?B reserved", said)), said)
    said = run(str(program), str(recording.parent / "absent.peak"), expect=2)
    expect(said.count("\n") == 1 and "absent.peak" in said, f"not one sentence: {said}")


def check_version(folder: Path, prefix: Path) -> None:
    """Another minor release is refused: before 1.0 it may have changed the API."""
    asked = folder / "newer"
    asked.mkdir()
    text = (HERE / "CMakeLists.txt").read_text().replace("peakline 0.1", "peakline 0.9")
    (asked / "CMakeLists.txt").write_text(text)
    said = run("cmake", "-S", str(asked), "-B", str(asked / "build"), "-G", "Ninja",
               f"-DCMAKE_PREFIX_PATH={prefix}", expect=1)  # fmt: skip
    expect(
        "0.9" in said and "version: 0.1" in said, f"the version is not what was refused:\n{said}"
    )


def check_symbols(library: Path) -> None:
    """Only what the public headers declare is exported."""
    names = run("nm", "-DC", "--defined-only", str(library)).splitlines()
    exported = [line.split(" ", 2)[2] for line in names if line.split(" ", 2)[1] not in "Vvu"]
    expect(any(name.startswith("peakline::summarize(") for name in exported), "nothing is exported")
    inner = ("peakline::kernels", "peakline::cost", "peakline::trace", "peakline::pickle", "ZSTD",
             "fmt::", "nlohmann", "toml")  # fmt: skip
    leaked = [name for name in exported if name.startswith(inner)]
    expect(not leaked, f"{len(leaked)} symbols are exported that nobody declares: {leaked[:3]}")
    # Replay's own bookkeeping: in core's namespace, and in no public header.
    expect(not any("peakline::MomentBook::" in name for name in exported), "internals are exported")


def check_no_lto(library: Path) -> None:
    """Objects for link-time optimization would need the very compiler that made them."""
    sections = run("readelf", "-SW", str(library))
    expect(
        ".gnu.lto_" not in sections, f"{library} can only be linked by the compiler that made it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--maker", required=True)
    parser.add_argument("--flags", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix = folder / "prefix"
        run(os.path.abspath(args.maker), "training", str(folder / "training.peak"))
        install(args.build, prefix)
        check_symbols(next(prefix.glob("lib*/**/libpeakline_core.so")))
        check_version(folder, prefix)
        check_no_lto(next(prefix.glob("lib*/**/libpeakline_core.a")))
        for kind in ("", "static", "shared"):
            program = build_project(folder, prefix, kind, args.flags)
            check_program(program, folder / "training.peak")
            is_shared = "libpeakline_core" in run("ldd", str(program))
            expect(is_shared == (kind == "shared"), f"{kind or 'static'} was asked for")
    print("package: found, built and run, static and shared")


if __name__ == "__main__":
    main()
