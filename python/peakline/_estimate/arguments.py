"""The command line of `peakline estimate`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from peakline import _C
from peakline._estimate import job

BAD_USAGE = 2
EXAMPLE = "example: peakline estimate train.py --gpu h100 --memory 40GiB -- --batch-size 8"


def complain(message: str) -> None:
    print(f"peakline: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{message}; the script's own arguments go after --; {EXAMPLE}")
        sys.exit(BAD_USAGE)


def parse(argv: list[str]) -> argparse.Namespace:
    own, script_args = argv, []
    if "--" in argv:
        split = argv.index("--")
        own, script_args = argv[:split], argv[split + 1 :]
    parser = _parser()
    args = parser.parse_args(own)
    if (args.script is None) == (args.module is None):
        parser.error("give either a script or -m MODULE")
    job.check(args, parser.error)
    args.devices = job.devices(args)
    if args.devices not in range(1, 9):
        parser.error(f"--devices takes 1 to 8, and got {args.devices}")
    if args.steps < 1:
        parser.error(f"--steps takes a number from 1, and got {args.steps}")
    for path in (args.output, args.json):
        if path not in (None, "-") and not _is_writable(Path(path)):
            parser.error(f"cannot write '{path}'")
    args.script_args = script_args
    return args


def _is_writable(path: Path) -> bool:
    """Asked before the script runs: nobody wants to learn it afterwards."""
    if path.exists():
        return path.is_file() and os.access(path, os.W_OK)
    return path.parent.is_dir() and os.access(path.parent, os.W_OK)


def _parser() -> _Parser:
    parser = _Parser(
        prog="peakline estimate",
        description="Runs a training script on a virtual GPU and says how much memory it needs.",
        epilog=f"Exits with 0 when it fits, 3 when it does not, 1 when the script fails. {EXAMPLE}",
    )
    parser.add_argument("script", nargs="?", help="the Python script, unmodified")
    parser.add_argument("-m", dest="module", help="a module to run, as python -m does")
    parser.add_argument(
        "--gpu",
        default="h200",
        metavar="NAME",
        help="the GPU, or a file that describes one (.toml); default: h200",
    )
    parser.add_argument(
        "--memory",
        type=_size,
        metavar="SIZE",
        help="what the allocator may reserve, for example 24GiB; default: all of the GPU's",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=3,
        metavar="N",
        help="end the script after N steps of the first optimizer; default: 3",
    )
    parser.add_argument(
        "--devices", type=int, metavar="N", help="how many GPUs, 1 to 8; default: 1"
    )
    parser.add_argument("--json", metavar="FILE", help="write the answer as JSON; - is stdout")
    parser.add_argument("-o", dest="output", metavar="FILE", help="keep the recording (.peak)")
    job.add_arguments(parser, _size_or_zero)
    return parser


def _size_or_zero(text: str) -> int:
    try:
        return _C.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size(text: str) -> int:
    size = _size_or_zero(text)
    if size <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no memory at all")
    return size
