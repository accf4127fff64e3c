"""`peakline estimate`: the C++ program starts it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peakline import _script
from peakline._estimate import arguments
from peakline._estimate.arguments import BAD_USAGE, complain


def main(argv: list[str]) -> int:
    args = arguments.parse(argv)
    try:
        if args.script:
            run = _script.script(args.script, args.script_args)
        else:
            run = _script.module(args.module, args.script_args)
    except OSError as error:
        complain(f"cannot read '{args.script}': {error.strerror}")
        return BAD_USAGE
    return _estimate(args, run)


def _estimate(args: argparse.Namespace, run: Callable[[], None]) -> int:
    from peakline._estimate import answer, outcome
    from peakline.virtual_gpu import virtual_gpu

    try:
        gpu = virtual_gpu(args.gpu, memory=args.memory, devices=args.devices)
        began = time.perf_counter()
        with gpu as recording:
            ended = outcome.run_script(run, args.steps, gpu.label_alive)
    except (ValueError, OSError) as error:
        complain(str(error))
        return BAD_USAGE
    seconds = time.perf_counter() - began
    if args.output:
        recording.save(args.output)
    if ended.status != 0:
        complain(f"the script failed (status {ended.status}), so there is no estimate")
        return outcome.SCRIPT_FAILED
    if not any(device.startswith("cuda") for device in recording.devices):
        complain("the script used no GPU memory, so there is nothing to estimate")
        return outcome.SCRIPT_FAILED
    found = answer.build(recording, ended, args.steps, gpu.notes())
    return _tell(args, found, seconds)


def _tell(args: argparse.Namespace, found: dict[str, Any], seconds: float) -> int:
    from peakline._estimate import outcome, table

    fits = not found["ooms"]
    if args.json == "-":
        print(json.dumps(found))
    elif args.json:
        Path(args.json).write_text(json.dumps(found) + "\n")
    if args.json != "-":
        steps = found["steps_completed"]
        what = args.script or f"-m {args.module}"
        count = f"{steps} step{'' if steps == 1 else 's'}"
        title = f"{what}, torch {found['torch']}, {count} in {seconds:.2f} s"
        print(table.render(found, title), end="")
    return outcome.FITS if fits else outcome.DOES_NOT_FIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
