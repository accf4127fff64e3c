"""Notebooks: after `%load_ext peakline`, a cell that begins with `%%peakline` is tracked."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from peakline.run import Run
from peakline.track import current_run, track
from peakline.virtual_gpu import virtual_gpu

_EXAMPLE = "%%peakline --gpu a100-80 --memory 40GiB --name run"


class _Usage(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(f"%%peakline: {message}; an example: {_EXAMPLE}")


def _parser() -> _Parser:
    parser = _Parser(prog="%%peakline", add_help=False, exit_on_error=False)
    parser.add_argument("--gpu", help="run the cell on a virtual GPU of this kind")
    parser.add_argument("--memory", help="how much of it there is: 24GiB")
    parser.add_argument("--name", help="the variable that is to have the run")
    parser.add_argument("--save", help="the recording's file")
    return parser


def load(shell: Any) -> None:
    def peakline(line: str, cell: str) -> Run | None:
        return _run_cell(shell, line, cell)

    peakline.__doc__ = (
        f"Runs the cell, and shows what memory it needed, here or on a virtual GPU:\n    {_EXAMPLE}"
    )
    shell.register_magic_function(peakline, "cell", "peakline")


def _run_cell(shell: Any, line: str, cell: str) -> Run | None:
    try:
        asked = _parser().parse_args(line.split())
        if asked.memory and not asked.gpu:
            raise _Usage("%%peakline: --memory is that of a virtual GPU; name one with --gpu")
        if current_run() is not None:
            raise _Usage("%%peakline: another run is being tracked; end it first")
        tracker = virtual_gpu(asked.gpu, asked.memory) if asked.gpu else track()
        run = tracker.start()
    except (_Usage, ValueError) as error:
        print(error)
        return None
    try:
        shell.run_cell(cell)  # which shows a cell's exception itself
    finally:
        tracker.stop()
    if asked.save:
        run.save(asked.save)
    if asked.name:
        shell.user_ns[asked.name] = run
    return run if run.devices else None
