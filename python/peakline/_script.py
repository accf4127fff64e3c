"""Running somebody's script as Python itself would, from inside another program."""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

INTERRUPTED = 130
NOBODY_READS = 141  # as a shell says it of a program that SIGPIPE ended


def script(path: str, args: list[str]) -> Callable[[], None]:
    """The script as Python would run it: as __main__, from its own folder."""
    with open(path, "rb") as source:
        code = source.read()
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = [path, *args]
    sys.path[0] = str(Path(path).resolve().parent)
    return lambda: exec(compile(code, path, "exec"), main.__dict__)


def module(name: str, args: list[str]) -> Callable[[], None]:
    sys.argv = [name, *args]
    sys.path[0] = os.getcwd()

    def run() -> None:
        runpy.run_module(name, run_name="__main__", alter_sys=True)

    return run


def _trim(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames that only running it under peakline adds."""
    hidden = (str(Path(__file__).parent), runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(hidden):
        trace = trace.tb_next
    return trace


def exit_status(code: object) -> int:
    """The exit status that Python gives to sys.exit(code)."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def show(raised: BaseException) -> None:
    """The exception as Python shows it, without the frames that only running it here adds."""
    error = raised.with_traceback(_trim(raised.__traceback__))
    sys.excepthook(type(error), error, error.__traceback__)


def for_a_reader(command: Callable[[], int]) -> int:
    """Its exit status, also when who reads the output goes away before the end (`| head`)."""
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return NOBODY_READS
    return status


def execute(run: Callable[[], None]) -> int:
    """The exit status of running it; an exception has been shown."""
    try:
        run()
    except SystemExit as end:
        return exit_status(end.code)
    except BaseException as raised:
        show(raised)
        return INTERRUPTED if isinstance(raised, KeyboardInterrupt) else 1
    return 0
