"""The command line of `peakline estimate`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from peakline import _C
from peakline._estimate import hf_flags, job, launchers, needed, neighbours, step_on
from peakline._virtual_cuda import _policy

BAD_USAGE = 2
_LEAST_MEMORY = 2**20
_MOST_GIBIBYTES = 8192  # a bare number above was not meant as these
EXAMPLE = "example: peakline estimate train.py --gpu h100 --memory 40GiB -- --batch-size 8"


def complain(message: str) -> None:
    print(f"peakline: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    example = EXAMPLE

    def error(self, message: str) -> NoReturn:
        complain(f"{message}; the script's own arguments go after --; {self.example}")
        sys.exit(BAD_USAGE)


def parse(argv: list[str], example: str = EXAMPLE) -> argparse.Namespace:
    """`example`: of the command that the user has typed, for who mistyped it."""
    own, script_args = launchers.split(argv)
    parser = _parser()
    parser.example = example
    args = parser.parse_args(own)
    args.script_args = script_args
    if args.hf is not None:
        _use_config(args, parser)
    elif lonely := hf_flags.given_without_config(args):
        parser.error(f"{lonely} is for --hf")
    if (args.script is None) == (args.module is None):
        parser.error("give either a script or -m MODULE")
    try:
        launchers.replace_by_first_process(args)
    except launchers.NothingLaunched as error:
        parser.error(str(error))
    _use_plan(args)
    job.check(args, parser.error)
    args.devices = job.devices(args)
    if args.devices not in range(1, 9):
        parser.error(f"--devices takes 1 to 8, and got {args.devices}")
    if args.fakes and not Path(args.fakes).is_file():
        parser.error(f"cannot read '{args.fakes}', which --fakes names")
    for path in (args.output, args.json):
        if path not in (None, "-") and not _is_writable(Path(path)):
            parser.error(f"cannot write '{path}'")
    if args.second_pass:
        needed.prepare(args)
    if args.until_sent:
        neighbours.follow(args)
    return args


def _use_config(args: argparse.Namespace, parser: _Parser) -> None:
    """The script is a program of ours that builds the model."""
    if args.script or args.module:
        parser.error("give either --hf or a script")
    try:
        hf_flags.check(args)
    except ValueError as error:
        complain(str(error))
        sys.exit(BAD_USAGE)
    args.module = "peakline._hf.program"
    args.script_args = [*hf_flags.words(args), *args.script_args]


def _use_plan(args: argparse.Namespace) -> None:
    """Reads `--plan`; the arguments that it has for the script go behind the others."""
    args.planned = None
    if args.plan is None:
        return
    from peakline._fit.variables import with_values
    from peakline._plan import document

    try:
        args.planned = document.load(args.plan)
    except ValueError as error:
        complain(str(error))
        sys.exit(BAD_USAGE)
    values = dict(args.planned.arguments)
    args.world_size = values.pop(document.WORLD_SIZE, args.world_size)
    if values:
        args.script_args = with_values(args.script_args, values)


def _is_writable(path: Path) -> bool:
    """Asked before the script runs: nobody wants to learn it afterwards."""
    if path.exists():
        return path.is_file() and os.access(path, os.W_OK)
    return path.parent.is_dir() and os.access(path.parent, os.W_OK)


def _parser() -> _Parser:
    parser = _Parser(
        prog="peakline estimate",
        description="Runs a training script on a virtual GPU and says how much memory it needs.",
        epilog="Exits with 0 when it fits, 3 when it does not, 1 when the script fails, 124 when "
        f"the time is up. {EXAMPLE}",
    )
    parser.add_argument("script", nargs="?", help="the Python script, unmodified")
    parser.add_argument("-m", dest="module", help="a module to run, as python -m does")
    parser.add_argument(
        "--gpu",
        default="h200",
        metavar="NAME",
        help=f"the GPU: {', '.join(_C.known_gpus())}, or a file that describes one (.toml); "
        "default: h200",
    )
    parser.add_argument(
        "--memory",
        type=size,
        metavar="SIZE",
        help="what the allocator may reserve, for example 24GiB; default: all of the GPU's",
    )
    parser.add_argument(
        "--steps",
        type=_steps,
        default=3,
        metavar="N",
        help="run N steps of the first optimizer, and what follows them once; or 'all'; default: 3",
    )
    parser.add_argument(
        "--step-on",
        metavar="NAME",
        type=step_on.full_name,
        help="what a step is: a function such as mymodule.Trainer.train_step or "
        "__main__.train_step, or 'forward' of the outermost module; default: the optimizer's step",
    )
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="answer for what ran in S seconds"
    )
    parser.add_argument(
        "--advice",
        type=seconds_or_none,
        default=20.0,
        metavar="S",
        help="when it does not fit, try a smaller batch and checkpointing for up to S seconds, and "
        "say what fits; 0: do not; default: 20",
    )
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="let the script overwrite, delete and send as it does; default: nothing that was "
        "there is touched, and what it saves goes to a scratch folder",
    )
    parser.add_argument(
        "--real-host",
        action="store_true",
        help="CPU tensors are real, whatever their size; default: those of 16 MiB and more have no "
        "bytes, so models may be larger than this machine",
    )
    parser.add_argument(
        "--host-memory",
        type=size,
        metavar="SIZE",
        help="what the host has for tensors, for example 64GiB; default: not asked",
    )
    parser.add_argument(
        "--eager", action="store_true", help="run what the script compiles uncompiled; a guess"
    )
    parser.add_argument(
        "--fakes",
        metavar="FILE.py",
        help="a file with fakes of custom ops (torch.library.register_fake), each used as soon as "
        "the script has defined its op",
    )
    parser.add_argument(
        "--no-stand-ins",
        dest="stand_ins",
        action="store_false",
        help="let imports of CUDA extensions that are not installed fail (flash_attn, xformers, "
        "apex)",
    )
    parser.add_argument(
        "--plan",
        metavar="P.json",
        help="apply a plan of `peakline plan` to the script: checkpointing, its optimizer and more",
    )
    parser.set_defaults(probe=None)
    parser.add_argument("--second-pass", help=argparse.SUPPRESS)
    parser.add_argument("--until-sent", help=argparse.SUPPRESS)
    parser.set_defaults(wanted="")
    parser.add_argument(
        "--devices", type=int, metavar="N", help="how many GPUs, 1 to 8; default: 1"
    )
    parser.add_argument(
        "--values",
        action="append",
        default=[],
        type=_value,
        metavar="NAME=V",
        help="answers a value that nobody can know: float=V, int=V, bool=true|false, or nonzero=V, "
        "the share of elements that count as nonzero (0 to 1); may be given for each of them",
    )
    parser.add_argument(
        "--curve",
        action="append",
        metavar="NAME=…",
        help="an estimate for each value of the script's argument NAME: A,B,C or A..B, which "
        "doubles from A to B; may be given for several",
    )
    parser.add_argument(
        "--longest-first",
        action="store_true",
        help="batches of DataLoaders begin with the longest examples; `peakline fit` does so",
    )
    parser.add_argument(
        "--no-clock",
        action="store_true",
        help="do not tell how long a step takes; a virtual step is a little faster without",
    )
    parser.add_argument(
        "--no-source",
        action="store_true",
        help="keep the text of the program's lines out of the recording",
    )
    parser.add_argument(
        "--cpp-stacks",
        action="store_true",
        help="keep the functions of C++ that the program's lines call in the recording, too",
    )
    parser.add_argument("--json", metavar="FILE", help="write the answer as JSON; - is stdout")
    parser.add_argument("-o", dest="output", metavar="FILE", help="keep the recording (.peak)")
    hf_flags.add_arguments(parser)
    job.add_arguments(parser, _size_or_zero)
    return parser


def _value(text: str) -> tuple[str, float]:
    try:
        return _policy.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size_or_zero(text: str) -> int:
    try:
        return _C.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size(text: str) -> int:
    """A size of a GPU's memory, as a type of argparse's."""
    found = _size_or_zero(text)
    if found <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no memory at all")
    if found < _LEAST_MEMORY:
        number = text.strip().rstrip("bB")
        unit = "GiB" if found <= _MOST_GIBIBYTES else "KiB"
        meant = f"{number}{unit}" if number.isdigit() else "24GiB"
        raise argparse.ArgumentTypeError(f"'{text}' is {found:,} bytes: did you mean {meant}?")
    return found


def _steps(text: str) -> int | None:
    """None: all of them."""
    if text == "all":
        return None
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"takes a number from 1 or 'all', and got '{text}'")
    return int(text)


def seconds_or_none(text: str) -> float:
    """As a type of argparse's; 0 is none."""
    return 0.0 if text == "0" else _seconds(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"takes seconds above 0, and got '{text}'")
    return seconds
