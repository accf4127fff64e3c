#!/usr/bin/env python3
"""Runs other people's programs, unmodified, with `peakline estimate`, and writes docs/programs.md.

    python tools/public_programs.py --work /tmp/programs            # all that have no result yet
    python tools/public_programs.py --work /tmp/programs mnist vae  # these, again
    python tools/public_programs.py --work /tmp/programs --write    # the table; what follows stays

Each is fetched at its commit (or taken from --sources, which has OWNER+NAME folders), copied, given
made-up data in place of what it would download, and started from its own folder. What programs
import is found in --libraries (programs/requirements.txt lists it).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

from programs.catalogue import PROGRAMS, Program
from programs.commits import COMMITS

_HERE = Path(__file__).resolve().parent
_SHIMS = _HERE / "programs" / "shims"
_DOCUMENT = _HERE.parent / "docs" / "programs.md"
_MIB = 2**20
_KEPT = ("peak_allocated", "peak_reserved", "partial", "by_category", "steps_completed")
_RANK = re.compile(r"^\[rank\d+\]: ")
_ERROR = re.compile(r"[\w.]*(Error|Exception)(:|$)")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "offline"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs; default: those without a result")
    parser.add_argument("--work", type=Path, required=True, help="folder for copies and results")
    parser.add_argument("--sources", type=Path, help="folder of checkouts; default: git fetches")
    parser.add_argument("--libraries", default="", help="what programs import, as PYTHONPATH")
    parser.add_argument("--timeout", type=int, default=240, help="seconds for each")
    parser.add_argument("--write", action="store_true", help="only write the table")
    args = parser.parse_args()
    results = args.work / "results.jsonl"
    known = {row["name"]: row for row in _rows(results)}
    if args.write:
        made = _document([known[p.name] for p in PROGRAMS if p.name in known])
        _DOCUMENT.write_text(made + written_by_hand(_DOCUMENT.read_text()))
        return 0
    for program in PROGRAMS:
        if program.name in args.names or (not args.names and program.name not in known):
            row = _run(program, args)
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row["name"], row["result"], f"{row['seconds']:.0f} s", flush=True)
    return 0


def _rows(results: Path) -> list[dict[str, Any]]:
    results.parent.mkdir(parents=True, exist_ok=True)
    return (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )


def _run(program: Program, args: argparse.Namespace) -> dict[str, Any]:
    copy = args.work / program.name
    shutil.rmtree(copy, ignore_errors=True)
    source = _source(program.repo, args)
    subprocess.run(["cp", "-al", str(source), str(copy)], check=True)
    folder = (copy / program.folder).resolve()
    paths = [str(_SHIMS), *(str(copy / path) for path in program.paths)]
    environment = os.environ | _OFFLINE | program.environment
    environment["PYTHONPATH"] = ":".join([*paths, args.libraries])
    for place, kind in program.data.items():
        _make(kind, folder / place, args)
    command = [str(Path(sys.executable).with_name("peakline")), "estimate", "--json", "answer.json"]
    command += ["--timeout", str(args.timeout), *shlex.split(program.command)]
    began = time.perf_counter()
    _, terminal = pty.openpty()  # some ask how wide it is
    termios.tcsetwinsize(terminal, (24, 80))
    with (args.work / f"{program.name}.log").open("w") as log:
        done = subprocess.run(
            ["timeout", "-k", "5", str(args.timeout + 60), *command],
            cwd=folder, env=environment, stdin=terminal, stdout=log, stderr=log, check=False,
        )  # fmt: skip
    seconds = time.perf_counter() - began
    answer = folder / "answer.json"
    found = json.loads(answer.read_text()) if answer.exists() else {}
    shutil.rmtree(copy, ignore_errors=True)
    log_text = (args.work / f"{program.name}.log").read_text(errors="replace")
    return {
        "name": program.name,
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "exit": done.returncode,
        "seconds": seconds,
        "result": _result(done.returncode, found, log_text),
        "ours": "site-packages/peakline/" in _last_traceback(log_text).split("Error")[0][-300:],
        **{
            key: found.get(key)
            for key in ("peak_allocated", "peak_reserved", "partial", "by_category")
        },
        "steps": len(found.get("steps", [])),
    }


def _commit() -> str:
    """Of peakline's own sources."""
    command = ["git", "-C", str(_HERE), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _make(kind: str, place: Path, args: argparse.Namespace) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": f"{_SHIMS}:{args.libraries}"}
    command = [sys.executable, str(_HERE / "programs" / "made_up.py"), kind, str(place)]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def _source(repo: str, args: argparse.Namespace) -> Path:
    if args.sources:
        return Path(args.sources, repo.replace("/", "+"))
    folder = Path(args.work) / "sources" / repo.replace("/", "+")
    if not folder.exists():
        git = ["git", "-C", str(folder)]
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        address = f"https://github.com/{repo}"
        subprocess.run([*git, "fetch", "-q", "--depth=1", address, COMMITS[repo]], check=True)
        subprocess.run([*git, "checkout", "-q", "FETCH_HEAD"], check=True)
    return folder


def _last_traceback(log: str) -> str:
    return log[log.rfind("Traceback (most recent call last)") :]


def _result(status: int, answer: dict[str, Any], log: str) -> str:
    """The table's words: the peaks, or one sentence."""
    if answer and not answer["partial"]:
        sizes = (answer["peak_allocated"] / _MIB, answer["peak_reserved"] / _MIB)
        return "{:,.1f} MiB, {:,.1f} MiB".format(*sizes)
    if status in (124, 137):
        return "the time was up"
    lines = [_RANK.sub("", line) for line in _last_traceback(log).splitlines()]
    errors = [line for line in lines if _ERROR.match(line)]
    errors += [line for line in lines if line.startswith("peakline:")]
    return errors[0][:200] if errors else f"exit status {status}"


def _document(rows: list[dict[str, Any]]) -> str:
    answered = sum("MiB" in row["result"] for row in rows)
    by_name = {program.name: program for program in PROGRAMS}
    dates = " and ".join(sorted({row["date"] for row in rows}))
    commits = " and ".join(sorted({row["commit"] for row in rows}))
    counts = {"answered": answered, "count": len(rows), "listed": len(PROGRAMS)}
    lines = [_HEAD.format(**counts, dates=dates, commits=commits)]
    for row in rows:
        program = by_name[row["name"]]
        address = f"https://github.com/{program.repo}/tree/{COMMITS[program.repo]}"
        where = f"[{program.repo}]({address}/{program.folder})"
        command = program.command.replace("|", "\\|")
        cells = (row["name"], f"{where} {COMMITS[program.repo][:7]}", f"<code>{command}</code>")
        lines.append("| " + " | ".join((*cells, row["result"], f"{row['seconds']:.0f} s")) + " |")
    return "\n".join(lines) + "\n"


def written_by_hand(document: str) -> str:
    """What follows the table: from the first heading below the title on."""
    found = re.search(r"^## ", document, re.MULTILINE)
    return "\n" + document[found.start() :] if found else ""


_HEAD = """# Other people's programs

{answered} of the {count} public programs that were run give an estimate; the others end with the
sentence in the table. The list has {listed}. They are unmodified but for their data, which is made
up, and their arguments.
`tools/public_programs.py` fetches each at its commit and runs it; `tools/programs/` has the list,
the data, and the libraries' versions.

CPU-only torch 2.13, the virtual GPU is an H200, three steps and what follows them. One pass over
the list on {dates}, with peakline at {commits}. The times are wall times on a 2-core machine that
others used as well, imports included; alone, most take 10 to 40 s.

| Program | Repository, commit | `peakline estimate …` | Peak allocated, reserved | Time |
|---|---|---|---|---:|"""


if __name__ == "__main__":
    sys.exit(main())
