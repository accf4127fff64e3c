"""Finds C++ tests, benchmarks and fuzzers that no CMake target builds.

python tools/check_tests_listed.py [ROOT]
"""

import sys
from pathlib import Path

# folder: which files in it must be named by its CMakeLists.txt or a .cmake file beside it
FOLDERS = {
    "tests": "*_test.cc",
    "benchmarks": "*_bench.cc",
    "fuzz": "*_fuzz.cc",
}


def unlisted(root: Path) -> list[str]:
    found = []
    for folder, pattern in FOLDERS.items():
        lists = [root / folder / "CMakeLists.txt", *(root / folder).glob("*.cmake")]
        text = "".join(path.read_text() for path in lists if path.exists())
        for path in sorted((root / folder).rglob(pattern)):
            if path.stem not in text:
                found.append(f"{path.relative_to(root)}: no target in {folder}/ builds it")
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = unlisted(root)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
