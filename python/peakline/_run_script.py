"""`peakline run`: tracks an unmodified script. The C++ program starts it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from peakline import _script

if TYPE_CHECKING:
    from peakline._oom_facts import OomFacts

BAD_USAGE = 2
_FEW_STEPS = 3  # as an estimate takes

_EXAMPLE = "example: peakline run train.py -o run.peak -- --epochs 1"


def _complain(message: str) -> None:
    print(f"peakline: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _complain(f"{message}; the script's own arguments go after --; {_EXAMPLE}")
        sys.exit(BAD_USAGE)


def _size(text: str) -> int:
    from peakline.track import largest_size

    try:
        return largest_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    from peakline._estimate.arguments import seconds_or_none

    return seconds_or_none(text)


def _parse(argv: list[str]) -> argparse.Namespace:
    own, script_args = argv, []
    if "--" in argv:
        split = argv.index("--")
        own, script_args = argv[:split], argv[split + 1 :]
    parser = _Parser(
        prog="peakline run",
        description="Tracks the memory of a training script as it really runs.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("script", nargs="?", help="the Python script")
    parser.add_argument("-m", dest="module", help="a module to run, as python -m does")
    parser.add_argument("-o", dest="output", metavar="FILE", help="the recording (.peak)")
    parser.add_argument(
        "--max-size",
        type=_size,
        default=0,
        metavar="SIZE",
        help="keep the recording below this: the peaks, and a summary of the rest (200MB)",
    )
    parser.add_argument("--no-ops", action="store_true", help="leave out op names: a bit faster")
    parser.add_argument(
        "--stacks",
        choices=("large", "all", "off"),
        default="large",
        help="which allocations are kept with the lines that asked for them; large: 1 MiB and more",
    )
    parser.add_argument(
        "--no-source", action="store_true", help="keep the text of lines out of the recording"
    )
    parser.add_argument(
        "--cpp-stacks", action="store_true", help="with the functions of C++ that lines call"
    )
    parser.add_argument(
        "--on-oom", metavar="FILE.html", help="explain it there when memory runs out"
    )
    parser.add_argument(
        "--advice",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="with --on-oom: try a smaller batch and checkpointing on a virtual GPU for up to S "
        "seconds, and say what fits; 0: do not; default: 60",
    )
    args = parser.parse_args(own)
    if (args.script is None) == (args.module is None):
        parser.error("give either a script or -m MODULE")
    args.script_args = script_args
    return args


def output_path(args: argparse.Namespace) -> Path:
    """`-o`, or the script's name; one file per rank when there are several."""
    stem = Path(args.script).stem if args.script else args.module.rpartition(".")[2]
    path = Path(args.output) if args.output else Path(f"{stem}.peak")
    if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1:
        path = path.with_name(f"{path.stem}.{os.environ.get('RANK', '0')}{path.suffix}")
    return path


def main(argv: list[str]) -> int:
    args = _parse(argv)
    output = output_path(args)
    try:
        if args.script:
            run = _script.Script(args.script, args.script_args).run
        else:
            run = _script.Module(args.module, args.script_args).run
    except OSError as error:
        _complain(f"cannot read '{args.script}': {error.strerror}")
        return BAD_USAGE

    from peakline._ending import SO_FAR
    from peakline.track import Tracker

    again = _Again(args) if args.on_oom else None
    info = {"command": " ".join([args.script or f"-m {args.module}", *args.script_args])}
    info |= _rank()
    tracker = Tracker(
        [],
        [],
        ops=not args.no_ops,
        path=output,
        info=info,
        stacks=args.stacks,
        source=not args.no_source,
        max_size=args.max_size,
        cpp=args.cpp_stacks,
        on_model=None if again is None else again.layers.met,
    )
    try:
        recording = tracker.start()
    except OSError as error:
        _complain(str(error))
        return BAD_USAGE
    try:
        status = _script.execute(_explained(run, args, again) if again is not None else run)
        if status:
            tracker.ended_early(f"the script failed (status {status}){SO_FAR}")
    finally:
        tracker.stop()
    sys.stdout.flush()
    try:
        for warning in recording.warnings:
            _complain(warning)
        where = [f"{device} {_peak(recording, device)}" for device in recording.devices]
    except (ValueError, OSError) as error:  # it was turned off before anything was written
        _complain(str(error))
        return status
    summary = ", ".join(where) or "nothing was allocated"
    _complain(f"wrote {output} (peak: {summary}); look at it with: peakline show {output}")
    return status


def _explained(
    run: Callable[[], None], args: argparse.Namespace, again: _Again
) -> Callable[[], None]:
    from peakline.explain_oom import explain_oom

    def explained() -> None:
        explaining = explain_oom(args.on_oom)
        explaining._more_advice = again.advice
        with explaining, again.batch.watched():
            run()

    return explained


class _Again:
    """The script, once more, in a process of its own and on a virtual GPU like the real one."""

    def __init__(self, args: argparse.Namespace) -> None:
        from peakline._estimate.needed import SecondPass
        from peakline._remedies import LayersMet
        from peakline._script_sizes import BatchMet

        self.batch, self.layers = BatchMet(), LayersMet()
        self._seconds = args.advice
        self._program = [args.script] if args.script else ["-m", args.module]
        self._words = args.script_args
        self._second_pass = SecondPass([])  # what the script changes about its process comes later

    def advice(self, facts: OomFacts) -> list[str]:
        from peakline import _remedies

        batch, plan = self.batch.found, self.layers.checkpointed()
        flags = self._flags(facts)
        if not self._seconds or flags is None or (batch is None and plan is None):
            return []
        again = self._second_pass.of([*self._program, *flags, "--", *self._words])
        _complain(_remedies.announcement(batch, plan, self._seconds))
        return _remedies.proven(
            lambda change, seconds: again.with_change(None, [], change, seconds),
            batch,
            plan,
            self._seconds,
        )

    @staticmethod
    def _flags(facts: OomFacts) -> list[str] | None:
        """For a GPU like this one, with as much memory. None where there is no such thing."""
        import torch

        from peakline import _C

        several = int(os.environ.get("WORLD_SIZE", "1") or 1) > 1
        if several or not facts.device.startswith("cuda") or facts.limit is None:
            return None
        gpu = torch.cuda.get_device_name(facts.device)
        try:
            _C.cost.Profile(gpu)
        except ValueError:
            return None
        steps = max(_FEW_STEPS, int(facts.failure["step"]))  # it has to come past that one
        return ["--gpu", gpu, "--memory", str(facts.limit), "--steps", str(steps)]


def _rank() -> dict[str, str]:
    """Which rank of how many this is, for `peakline merge`."""
    names = {"RANK": "rank", "WORLD_SIZE": "world_size"}
    return {key: os.environ[name] for name, key in names.items() if os.environ.get(name)}


def _peak(recording: object, device: str) -> str:
    from peakline.run import Run, format_size

    assert isinstance(recording, Run)
    return format_size(recording.peak(device).bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
