"""Ordinary programs run out of memory on a GPU; what peakline's page advises is followed.

    python tools/oom_check.py [--virtual] [--only NAME…] [--out FOLDER] [--seconds N]

Each program of tools/oom has a share of the GPU that is too small for it. It runs as a user would
run it, under `peakline run --on-oom` or with `explain_oom` in its code, until memory runs out. The
page has to name a line of the program. Then the program runs again as the page says, and has to
train. One line a piece of advice; the exit status is 1 when one of them does not hold. The programs
run side by side. `--virtual` takes a virtual GPU, for a machine without a real one.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import html
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "oom"
TRAINED = re.compile(r"^trained \d+ steps$", re.MULTILINE)


@dataclass
class Remedy:
    """A piece of advice, as somebody would follow it."""

    advice: str
    words: list[str] = field(default_factory=list)  # for the program
    environment: dict[str, str] = field(default_factory=dict)


Remedies = Callable[[str], Iterator[Remedy]]


@dataclass
class Case:
    """A program; how its page is asked for; what of the page can be followed, and how."""

    program: str
    under_run: bool
    remedies: Remedies


def smaller_batch_and_checkpointing(page: str) -> Iterator[Remedy]:
    for advice in re.findall(r"--batch-size \d+ instead of \d+ fits[^<]*", page):
        yield Remedy(advice, advice.split()[:2])
    for advice in re.findall(r"Checkpointing 24 layers of GPT [^<]* fits[^<]*", page):
        yield Remedy(advice, ["--checkpoint"])


def setting_of_the_allocator(page: str) -> Iterator[Remedy]:
    for setting in re.findall(r"PYTORCH_CUDA_ALLOC_CONF=(\S+) lets this allocation pass", page):
        environment = {"PYTORCH_CUDA_ALLOC_CONF": setting}
        yield Remedy(f"PYTORCH_CUDA_ALLOC_CONF={setting}", environment=environment)


def collected_garbage(page: str) -> Iterator[Remedy]:
    for advice in re.findall(r"[\d.]+ GiB were garbage[^<]*gc.collect\(\)[^<]*", page):
        yield Remedy(advice, ["--collect"])


def kept_no_longer(page: str) -> Iterator[Remedy]:
    """The page names the list that grows; what the program keeps in it can be smaller."""
    found = re.search(r"Grows with every step.*?held by <code>(main\(\): predictions[^<]*)", page)
    if found is not None:
        yield Remedy(f"grows with every step, held by {found[1]}", ["--keep", "ids"])


CASES = [
    Case("gpt.py", True, smaller_batch_and_checkpointing),
    Case("lengths.py", False, setting_of_the_allocator),
    Case("predictions.py", True, kept_no_longer),
    Case("sweep.py", False, collected_garbage),
]


class Runner:
    def __init__(self, args: argparse.Namespace) -> None:
        self._virtual, self._seconds = args.virtual, args.seconds

    def until_it_fails(self, case: Case, page: Path) -> str:
        """What the program printed. Its page is written by then."""
        program = str(PROGRAMS / case.program)
        if not case.under_run:
            return self._program(program, ["--explain", str(page)], {}).stderr
        command = ["-m", "peakline._run_script", program, "--on-oom", str(page)]
        command += ["--advice", str(self._seconds), "-o", "run.peak"]
        if self._virtual:
            command = [__file__, "--inside", "run", program, str(page), str(self._seconds)]
        return self._python(command, {}).stderr

    def follow(self, case: Case, remedy: Remedy) -> bool:
        program = str(PROGRAMS / case.program)
        done = self._program(program, remedy.words, remedy.environment)
        return done.returncode == 0 and TRAINED.search(done.stdout) is not None

    def _program(
        self, program: str, words: list[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        inside = [__file__, "--inside", "program"] if self._virtual else []
        return self._python([*inside, program, *words], environment)

    def _python(
        self, command: list[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as folder:  # for pages that nobody needs
            return subprocess.run(
                [sys.executable, *command],
                env={**os.environ, **environment},
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )


def check(case: Case, runner: Runner, folder: Path) -> tuple[bool, list[str]]:
    """Whether all holds, and a line for each thing that was tried."""
    began = time.monotonic()
    page = folder / f"{Path(case.program).stem}.html"
    printed = runner.until_it_fails(case, page)
    if not page.exists():
        return False, [f"FAILED {case.program}: there is no page; {last_line(printed)}"]
    text = page.read_text(encoding="utf-8")
    lines = [f"ok     {case.program}: ran out of memory; {asked_for_by(text)}"]
    holds = f"by {case.program}:" in asked_for_by(text)
    remedies = list(case.remedies(text))
    if not holds or not remedies:
        return False, [f"FAILED {case.program}: {asked_for_by(text)}; advice: {remedies}"]
    for remedy in remedies:
        trains = runner.follow(case, remedy)
        holds &= trains
        said = html.unescape(remedy.advice)
        lines.append(
            f"{'ok    ' if trains else 'FAILED'} {case.program}: followed, it "
            f"{'trains' if trains else 'does not train'}: {said}"
        )
    lines.append(f"       {case.program}: {time.monotonic() - began:.0f} s")
    return holds, lines


def asked_for_by(page: str) -> str:
    """The program's line that asked, by the page."""
    asked = re.search(r"<p>(?:The backward of )?<code>([^<]*)</code>[^\n]*?asked[.,]", page)
    return f"asked by {Path(html.unescape(asked[1])).name}" if asked else "asked by no line"


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was printed"])[-1]


def inside(words: list[str]) -> None:
    """In a child, with `--virtual`: one program on a virtual GPU."""
    import torch

    import peakline

    what, program = words[:2]
    if what == "program":
        sys.argv = words[1:]
        with peakline.virtual_gpu("h200"):
            runpy.run_path(program, run_name="__main__")
        return
    from peakline import _run_script

    args = argparse.Namespace(script=program, module=None, script_args=[], on_oom=words[2])
    args.advice = float(words[3])
    sys.argv = [program]
    gpu, again = peakline.virtual_gpu("h200"), _run_script._Again(args)
    gpu.on_model(again.layers.met)

    def run() -> None:
        runpy.run_path(program, run_name="__main__")

    with gpu, contextlib.suppress(torch.OutOfMemoryError):
        _run_script._explained(run, args, again)()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [case.program for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--virtual", action="store_true", help="no real GPU")
    parser.add_argument("--out", type=Path, default=Path("build/oom"), help="for the pages")
    parser.add_argument("--jobs", type=int, default=len(CASES), help="programs side by side")
    parser.add_argument(
        "--seconds", type=float, default=60, help="for trying a smaller batch and checkpointing"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    folder = args.out.resolve()
    runner, failed = Runner(args), 0
    chosen = [case for case in CASES if case.program in args.only]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        checks = [pool.submit(check, case, runner, folder) for case in chosen]
        for done in concurrent.futures.as_completed(checks):
            holds, lines = done.result()
            failed += not holds
            print("\n".join(lines), flush=True)
    print(f"{len(chosen)} programs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2:])
    else:
        sys.exit(main())
