"""`peakline estimate`: the C++ program starts it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from peakline import _script
from peakline._estimate import all_ranks, arguments, job
from peakline._estimate.arguments import BAD_USAGE, complain

# The allocator's settings count from when CUDA starts, which on a real GPU is after a script's
# first lines. A process of its own may start again with what those lines set.
_CHANGED = "the script sets PYTORCH_CUDA_ALLOC_CONF={settings} itself"


def main(argv: list[str], alone: bool = False) -> int:
    """`alone`: nobody else needs this process."""
    args = arguments.parse(argv)
    args.argv = argv
    args.restart = alone and not args.ranks
    try:
        if args.script:
            run = _script.script(args.script, args.script_args)
        else:
            run = _script.module(args.module, args.script_args)
    except OSError as error:
        complain(f"cannot read '{args.script}': {error.strerror}")
        return BAD_USAGE
    began = time.perf_counter()
    if args.ranks:
        status, answers = all_ranks.estimate_distinct(
            lambda rank, tell: _estimate(args, run, rank, tell)
        )
        found = all_ranks.largest(answers) if answers else None
    else:
        status, found = _estimate(args, run, args.rank or 0)
    if found is None or (args.ranks and len(found["ranks"]) < len(found["distinct_ranks"])):
        return status
    return _tell(args, found, time.perf_counter() - began)


def _estimate(
    args: argparse.Namespace,
    run: Callable[[], None],
    rank: int,
    tell_ranks: all_ranks.Tell | None = None,
) -> tuple[int, dict[str, Any] | None]:
    """The exit status, and the answer unless the script failed."""
    from peakline._allocator_settings import in_environment
    from peakline._estimate import answer, outcome
    from peakline.virtual_gpu import virtual_gpu

    given = in_environment()
    job.set_environment(args, rank)
    try:
        gpu = virtual_gpu(args.gpu, memory=args.memory, devices=args.devices)
        gpu.job.routing_imbalance = args.routing_imbalance
        gpu.job.tell_ranks = tell_ranks
        with gpu as recording:
            ended = outcome.run_script(run, args.steps, gpu.label_alive)
            gpu.job.finish()
    except (ValueError, OSError) as error:
        complain(str(error))
        return BAD_USAGE, None
    settings = in_environment()
    changed = settings != given
    if changed and args.restart:
        _start_again(args.argv, settings)
    if args.output:
        recording.save(_output(args, rank))
    if ended.status != 0:
        who = f"rank {rank}: " if args.world_size else ""
        complain(f"{who}the script failed (status {ended.status}), so there is no estimate")
        return outcome.SCRIPT_FAILED, None
    if not any(device.startswith("cuda") for device in recording.devices):
        complain("the script used no GPU memory, so there is nothing to estimate")
        return outcome.SCRIPT_FAILED, None
    notes = gpu.notes()
    if changed:
        notes.append(_CHANGED.format(settings=settings) + ", which came too late to be counted")
    found = answer.build(recording, ended, args.steps, notes)
    return 0, gpu.job.complete(found, rank, args.nccl_memory, args.memory)


def _output(args: argparse.Namespace, rank: int) -> Path:
    """`-o`; one file per rank when there are several."""
    path = Path(args.output)
    return path.with_name(f"{path.stem}.{rank}{path.suffix}") if args.ranks else path


def _start_again(argv: list[str], settings: str) -> NoReturn:
    complain(_CHANGED.format(settings=settings) + ": starting again with it")
    os.execv(sys.executable, [sys.executable, "-m", "peakline._estimate_script", *argv])


def _tell(args: argparse.Namespace, found: dict[str, Any], seconds: float) -> int:
    from peakline._estimate import outcome, rank_table, table

    fits = found["fits"] is not False and not found["ooms"]
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
        print(rank_table.render(found), end="")
    return outcome.FITS if fits else outcome.DOES_NOT_FIT


if __name__ == "__main__":
    sys.exit(_script.for_a_reader(lambda: main(sys.argv[1:], alone=True)))
