"""Recordings that earlier versions made still open, and give the answers that they gave then.

    python old_recordings.py --cli PEAKLINE [--answer FOLDER]

A folder of tests/data/recordings has the name of the version that made its files, and beside each
NAME.peak what that version answered: NAME.json, from a command's words to its exit status and JSON.
A newer version may answer more, so every value of then must be there now. --answer FOLDER asks
PEAKLINE, which has to be that version itself, and writes the answers down.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
COMMANDS = (
    "show",
    "simulate",
    "simulate --conf expandable_segments:True",
    "simulate --memory 110MiB",
)
# Long, and told by the other answers.
LEFT_OUT = ("timeline", "memory_stats")
# Where an answer of then was mended on purpose, the key that is not compared, and why.
MENDED = {
    "0.1.0/oom.peak": {
        "by_category": "what a forward held when memory ran out is Activation, not Temp",
        "by_subcategory": "likewise",
    },
    "0.1.0/impossible.peak": {"warnings": "one thing is said in the singular"},
}


def ask(cli: str, command: str, recording: Path) -> dict[str, Any]:
    verb, *options = command.split()
    done = subprocess.run(
        [str(Path(cli).resolve()), verb, recording.name, *options, "--json", "-"],
        cwd=recording.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout) if done.stdout else None
    return {"exit": done.returncode, "answer": answer}


def without_long_parts(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {k: without_long_parts(v) for k, v in answer.items() if k not in LEFT_OUT}
    return [without_long_parts(v) for v in answer] if isinstance(answer, list) else answer


def differences(then: Any, now: Any, mended: Container[str], where: str = "") -> list[str]:
    """What `then` says and `now` does not."""
    if isinstance(then, dict) and isinstance(now, dict):
        asked = [key for key in then if key not in mended]
        missing = [f"{where}/{key} is missing" for key in asked if key not in now]
        both = (key for key in asked if key in now)
        return missing + [
            d for key in both for d in differences(then[key], now[key], mended, f"{where}/{key}")
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, mended, f"{where}/{i}")]
    return [] if then == now else [f"{where}: was {then!r}, is {now!r}"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cli", required=True)
    parser.add_argument("--answer", type=Path)
    args = parser.parse_args()
    folders = [args.answer] if args.answer else sorted(RECORDINGS.iterdir())
    failed = asked = 0
    for recording in (path for folder in folders for path in sorted(folder.glob("*.peak"))):
        answers = recording.with_suffix(".json")
        if args.answer:
            found = without_long_parts({c: ask(args.cli, c, recording) for c in COMMANDS})
            answers.write_text(json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n")
            continue
        name = f"{recording.parent.name}/{recording.name}"
        for command, then in json.loads(answers.read_text()).items():
            asked += 1
            wrong = differences(then, ask(args.cli, command, recording), MENDED.get(name, {}))
            failed += bool(wrong)
            for line in wrong[:5]:
                print(f"{name}, {command}: {line}", file=sys.stderr)
    print(f"{asked} answers, {failed} of them differ")
    return 1 if failed or (not asked and not args.answer) else 0


if __name__ == "__main__":
    raise SystemExit(main())
