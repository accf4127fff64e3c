"""The command line of `peakline fit`: its own flags, and those of `peakline estimate`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import NoReturn

from peakline._estimate import arguments, launchers
from peakline._estimate.arguments import BAD_USAGE, complain
from peakline._fit import variables
from peakline._fit.variables import Variable

EXAMPLE = "example: peakline fit train.py --memory 24GiB --vary batch-size=1..512 -- --lr 1e-4"


@dataclass
class Orders:
    vary: list[Variable]
    margin: float  # share of the memory that stays free
    jobs: int
    json: str | None
    forget: bool
    as_they_come: bool  # the examples, instead of the longest first
    own: list[str]  # for `estimate`
    words: list[str]  # for the script

    def estimate_words(self, values: dict[str, int], memory: int | None) -> list[str]:
        """The command line of one try. `memory`: what the allocator may reserve."""
        limit = [] if memory is None else ["--memory", str(memory)]
        order = [] if self.as_they_come else ["--longest-first"]
        return [*self.own, *limit, *order, "--", *variables.with_values(self.words, values)]

    def estimate_args(self, values: dict[str, int], memory: int | None) -> argparse.Namespace:
        return arguments.parse(self.estimate_words(values, memory), EXAMPLE)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{message}; the script's own arguments go after --; {EXAMPLE}")
        sys.exit(BAD_USAGE)


def parse(argv: list[str]) -> Orders:
    own, words = launchers.split(argv)
    parser = _parser()
    args, rest = parser.parse_known_args(own)
    if not 1 <= len(args.vary) <= 2:
        parser.error(f"--vary is given once or twice, and was given {len(args.vary)} times")
    if len({variable.name for variable in args.vary}) < len(args.vary):
        parser.error("the two --vary name the same")
    unknown = variables.unknown_mark(words, [variable.name for variable in args.vary])
    if unknown:
        complain(f"no --vary is called {unknown}, so the script gets @{unknown} as it stands")
    if not 0 <= args.margin < 1:
        parser.error(f"--margin takes 0% to 99%, and got {args.margin:.0%}")
    if args.jobs < 1:
        parser.error(f"--jobs takes a number from 1, and got {args.jobs}")
    return Orders(
        args.vary,
        args.margin,
        args.jobs,
        args.json,
        args.forget,
        args.as_they_come,
        rest,
        words,
    )


def _parser() -> _Parser:
    parser = _Parser(
        prog="peakline fit",
        description="Finds the largest value of a script's argument that fits a GPU, without one. "
        "Takes all flags of `peakline estimate` besides.",
        epilog="Exits with 0 when a value fits, 3 when none does, 1 when the script fails. "
        f"The script gets --NAME N, or N wherever its arguments say @NAME. {EXAMPLE}",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        type=variable,
        metavar="NAME=A..B",
        help="what to vary, and from where to where, or NAME=A,B,C; given twice: the frontier",
    )
    parser.add_argument(
        "--margin", type=share, default=0.0, metavar="P%", help="keep P%% of the memory free"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="tries at the same time; default: 1"
    )
    parser.add_argument("--json", metavar="FILE", help="write the answer as JSON; - is stdout")
    parser.add_argument(
        "--forget", action="store_true", help="try again what was tried in an earlier search"
    )
    parser.add_argument(
        "--as-they-come",
        action="store_true",
        help="leave the order of examples alone; otherwise the longest come first",
    )
    return parser


def variable(text: str) -> Variable:
    try:
        return variables.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def share(text: str) -> float:
    try:
        return float(text.rstrip("%")) / 100
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a share such as 5%, and got '{text}'") from None
