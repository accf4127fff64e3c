"""Golden tests through the command line: recordings in, text out.

    python run.py --cli PEAKLINE --maker MAKE_RECORDING [--update]

A case is a file in cases/: the command after "$ ", then its exit status, stdout and stderr.
--update writes what the program says now; read the difference before committing it.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = Path(__file__).parent / "cases"
RECORDINGS = (
    "training",
    "grown",
    "odd-names",
    "impossible",
    "settings",
    "stacks",
    "stacks-grown",
    "out-of-memory",
    "empty",
)

# Two blocks of one large segment, and a third that needs another one.
TRACE = """action,addr,size,stream
segment_alloc,140000000000000,20971520,0
alloc,140000000000000,8388608,0
alloc,140000008388608,8388608,0
free_requested,140000000000000,8388608,0
free_completed,140000000000000,8388608,0
segment_alloc,140000100000000,52428800,0
alloc,140000100000000,52428800,0
"""


def transcript(cli: str, command: str, folder: str) -> str:
    words = shlex.split(command)
    assert words[0] == "peakline", f"a case runs peakline, not {words[0]}"
    env = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [os.path.abspath(cli), *words[1:]],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        f"$ {command}\nexit {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"
    )


def write_ranks(folder: Path) -> None:
    """Ranks of a job: 1 is larger, 2 is missing, 3 was killed, 4 is damaged."""
    training = (folder / "training.peak").read_bytes()
    (folder / "run.0.peak").write_bytes(training)
    (folder / "run.1.peak").write_bytes((folder / "grown.peak").read_bytes())
    (folder / "run.3.peak").write_bytes(training[:-8])
    (folder / "run.4.peak").write_text("no recording\n")


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > 80]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cli", required=True)
    parser.add_argument("--maker", required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    failed = 0
    cases = sorted(CASES.glob("*.txt"))
    with tempfile.TemporaryDirectory() as folder:
        for name in RECORDINGS:
            subprocess.run([args.maker, name, f"{folder}/{name}.peak"], check=True)
        Path(folder, "text.peak").write_text("no recording\n")
        Path(folder, "cut.peak").write_bytes(Path(folder, "training.peak").read_bytes()[:100])
        write_ranks(Path(folder))
        Path(folder, "trace.csv").write_text(TRACE)
        Path(folder, "evil.pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'false'\ntR.")
        for case in cases:
            expected = case.read_text()
            command = expected.splitlines()[0].removeprefix("$ ")
            actual = transcript(args.cli, command, folder)
            if args.update:
                case.write_text(actual)
            elif actual != expected:
                failed += 1
                print(f"{case.name}: expected\n{expected}\nbut got\n{actual}", file=sys.stderr)
            for_people = case.name.startswith(("show-", "merge-", "diff-", "check-", "live-"))
            if for_people and "--json" not in command and too_wide(actual.split("--- stderr")[0]):
                failed += 1
                print(f"{case.name}: lines over 80 columns: {too_wide(actual)}", file=sys.stderr)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    raise SystemExit(main())
