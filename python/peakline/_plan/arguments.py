"""The command line of `peakline plan`: its own flags, and those of `peakline estimate`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from peakline._estimate import arguments, launchers
from peakline._estimate.arguments import BAD_USAGE, complain
from peakline._fit.arguments import share, variable
from peakline._fit.variables import Variable, with_values
from peakline._plan.document import WORLD_SIZE, Plan
from peakline._plan.levers import LEVERS

EXAMPLE = "example: peakline plan train.py --memory 24GiB --vary batch-size=1..64 -- --lr 1e-4"
UNLIMITED = 2**48  # more than any GPU has, and well inside the addresses of a virtual one
ACTIVATIONS = "activations"


@dataclass
class Orders:
    vary: list[Variable] = field(default_factory=list)
    margin: float = 0.0
    jobs: int = 1
    on: str = ""  # a cluster: dask:ADDRESS or ray
    json: str | None = None
    output: str | None = None
    forget: bool = False
    levers: tuple[str, ...] = ()  # keys that may be changed
    memory: int | None = None
    own: list[str] = field(default_factory=list)  # for `estimate`
    words: list[str] = field(default_factory=list)  # for the script

    def estimate_words(self, plan: Plan, flags: tuple[str, ...] = ()) -> list[str]:
        """The command line of one estimate, without a limit; the plan itself is handed over."""
        values = dict(plan.arguments)
        world = values.pop(WORLD_SIZE, None)
        job = [] if world is None else ["--world-size", str(world)]
        limit = ["--memory", str(UNLIMITED)]
        return [*self.own, *limit, *job, *flags, "--", *with_values(self.words, values)]

    def script_words(self, plan: Plan) -> list[str]:
        """The script's own arguments, with the plan's values."""
        values = {name: value for name, value in plan.arguments.items() if name != WORLD_SIZE}
        return with_values(self.words, values)

    def command(self, plan: Plan, file: str) -> str:
        """What shows the same plan again, which has the script's arguments in it."""
        return self._typed("estimate", ["--plan", file])

    def search_command(self, *more: str) -> str:
        """This search, as it is typed, with more flags."""
        varied = [word for one in self.vary for word in ("--vary", str(one))]
        levers = [] if self.levers == usual_levers() else ["--levers", ",".join(self.levers)]
        margin = ["--margin", f"{100 * self.margin:g}%"] if self.margin else []
        return self._typed("plan", [*varied, *levers, *margin, *more])

    def _typed(self, command: str, flags: list[str]) -> str:
        memory = [] if self.memory is None else ["--memory", _as_typed(self.memory)]
        tail = ["--", *self.words] if self.words else []
        return f"peakline {command} " + shlex.join([*self.own, *memory, *flags, *tail])


def _as_typed(size: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{message}; the script's own arguments go after --; {EXAMPLE}")
        sys.exit(BAD_USAGE)


def parse(argv: list[str]) -> Orders:
    own, words = launchers.split(argv)
    parser = _parser()
    args, rest = parser.parse_known_args(own)
    if len({one.name for one in args.vary}) < len(args.vary):
        parser.error("two --vary name the same")
    if not 0 <= args.margin < 1:
        parser.error(f"--margin takes 0% to 99%, and got {args.margin:.0%}")
    if args.jobs < 1:
        parser.error(f"--jobs takes a number from 1, and got {args.jobs}")
    if args.on and not (args.on == "ray" or args.on.startswith("dask:")):
        parser.error(f"--on takes dask:ADDRESS or ray, and got '{args.on}'")
    for path in (args.output, args.json):
        if path not in (None, "-") and not _is_writable(path):
            parser.error(f"cannot write '{path}'")
    orders = Orders(
        args.vary,
        args.margin,
        args.jobs,
        args.on,
        args.json,
        args.output,
        args.forget,
        _levers(args.levers, parser),
        None,
        rest,
        words,
    )
    # Wrong flags and a missing script are found before anything is started.
    first = Plan(arguments={one.name: one.values[0] for one in args.vary})
    checked = arguments.parse(orders.estimate_words(first), EXAMPLE)
    if checked.ranks or checked.output or checked.curve or checked.plan or checked.no_clock:
        parser.error(
            "--ranks, -o of a recording, --curve, --plan and --no-clock are for `estimate`"
        )
    if checked.script and not Path(checked.script).is_file():
        why = "it is a folder" if Path(checked.script).is_dir() else "there is no such file"
        complain(f"cannot read '{checked.script}': {why}")
        sys.exit(BAD_USAGE)
    orders.memory = args.memory
    return orders


def _is_writable(path: str) -> bool:
    where = Path(path)
    if where.exists():
        return where.is_file() and os.access(where, os.W_OK)
    return where.parent.is_dir() and os.access(where.parent, os.W_OK)


def known_levers() -> list[str]:
    return [ACTIVATIONS, *(lever.key for lever in LEVERS)]


def usual_levers() -> tuple[str, ...]:
    """Those that leave the numbers as they are."""
    return (ACTIVATIONS, *(lever.key for lever in LEVERS if lever.keeps_numbers))


def _levers(given: str | None, parser: _Parser) -> tuple[str, ...]:
    if given is None:
        return usual_levers()
    chosen = [word for word in given.split(",") if word]
    for word in chosen:
        if word not in known_levers():
            parser.error(f"there is no lever '{word}'; known: {', '.join(known_levers())}")
    return tuple(chosen)


def _parser() -> _Parser:
    parser = _Parser(
        prog="peakline plan",
        description="Finds what to change about a training script so that it fits a GPU, and what "
        "that costs, without one. Takes the flags of `peakline estimate` besides.",
        epilog="Exits with 0 when a plan fits, 3 when none does, 1 when the script fails. "
        f"Every plan that is shown was estimated. {EXAMPLE}",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--memory",
        type=arguments.size,
        metavar="SIZE",
        help="what the allocator may reserve, for example 24GiB; default: all of the GPU's",
    )
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        type=variable,
        metavar="NAME=A..B",
        help="an argument of the script that may be changed, too: A..B, in steps of at most a "
        "half (1, 2, 3, 4, 6, 8, …), or A,B,C; world-size is the job's; may be given for several",
    )
    parser.add_argument(
        "--levers",
        metavar="A,B",
        help="change these alone; default: all that leave the numbers of training as they are. "
        f"Known: {', '.join(known_levers())}",
    )
    parser.add_argument(
        "--margin", type=share, default=0.0, metavar="P%", help="keep P%% of the memory free"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="estimates at the same time; default: one for each core",
    )
    parser.add_argument(
        "--on",
        default="",
        metavar="WHERE",
        help="send estimates to a cluster that is there: dask:ADDRESS or ray",
    )
    parser.add_argument("--json", metavar="FILE", help="write the answer as JSON; - is stdout")
    parser.add_argument("-o", dest="output", metavar="P.json", help="write the chosen plan")
    parser.add_argument(
        "--forget", action="store_true", help="estimate again what was estimated before"
    )
    return parser
