"""How the script ended, in the terms of the exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from peakline import _script
from peakline._ending import SO_FAR, Ending, ScriptExited, caused_by
from peakline._estimate import job
from peakline._estimate.course import Course

FITS = 0
SCRIPT_FAILED = 1
DOES_NOT_FIT = 3

_FAILED = "the script failed (status {status}){hint}" + SO_FAR
_LAUNCHED = (
    ": it wants {variable}, which a launcher sets; --world-size N sets it, too, as does `peakline "
    "estimate torchrun --nproc-per-node N …`"
)
_INTERRUPTED = "the script was interrupted" + SO_FAR
_ENDED = "{why}" + SO_FAR


@dataclass(frozen=True)
class Outcome:
    status: int = 0  # of the script: 0, or what it failed with
    out_of_memory: str | None = None  # torch's words, when that is what ended the script
    blames_memory: bool = False  # the script's own error came of one about memory
    partial: str = ""  # why this is not the whole answer, as a sentence; "": it is
    exit: int = 0  # what the estimate exits with, when it fits

    def fits(self, ooms: int, allocated_since: bool) -> bool:
        """`allocated_since`: GPU memory was allocated after the last of `ooms` failures.

        A script survives them by itself when it goes on to use the GPU and does not fail of them.
        """
        if self.out_of_memory is not None or self.blames_memory:
            return False
        return ooms == 0 or allocated_since


def run_script(
    run: Callable[[], None], course: Course, on_failure: Callable[[], None] = lambda: None
) -> Outcome:
    """Runs it until it ends by itself or `course` ends it.

    `on_failure` is called when it has failed, while its tensors still live.
    """
    with _stdout_to_stderr():
        try:
            run()
        except Ending as end:
            return ended(end)
        except SystemExit as end:
            return _failed(_script.exit_status(end.code), end)
        except torch.OutOfMemoryError as error:
            on_failure()
            return Outcome(out_of_memory=str(error))
        except KeyboardInterrupt as error:
            on_failure()
            _script.show(error)
            status = _script.INTERRUPTED
            return Outcome(status=status, partial=_INTERRUPTED, exit=status)
        except BaseException as error:
            if course.stumbled(error):
                return Outcome()
            on_failure()
            _script.show(error)
            if not caused_by(error, torch.OutOfMemoryError) and course.surprised(error):
                return Outcome()
            return _failed(1, error)
    return Outcome()


def ended(end: Ending) -> Outcome:
    """Of a script that was ended from inside."""
    if isinstance(end, ScriptExited) and end.script_status:
        return _failed(end.script_status, end)
    partial = _ENDED.format(why=end) if end.partial else ""
    return Outcome(partial=partial, exit=end.status)


def _failed(status: int, error: BaseException) -> Outcome:
    if status == 0:
        return Outcome()
    blames_memory = caused_by(error, torch.OutOfMemoryError)
    partial = _FAILED.format(status=status, hint=_hint(error))
    return Outcome(status, None, blames_memory, partial, SCRIPT_FAILED)


def _hint(error: BaseException) -> str:
    """For a script that a launcher should have started."""
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    return _LAUNCHED.format(variable=missing) if missing in job.VARIABLES else ""


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """What the script prints is progress; stdout is for the answer."""
    sys.stdout.flush()
    kept, stdout = os.dup(1), sys.stdout

    def back() -> None:
        sys.stdout.flush()
        sys.stdout = stdout
        os.dup2(kept, 1)

    os.dup2(2, 1)
    sys.stdout = sys.stderr
    _give_back.append(back)
    try:
        yield
    finally:
        _give_back.remove(back)
        back()
        os.close(kept)


_give_back: list[Callable[[], None]] = []


def give_stdout_back() -> None:
    """For an answer while the script still runs."""
    for back in _give_back:
        back()
