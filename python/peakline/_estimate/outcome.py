"""How the script ended, in the terms of the exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from peakline import _script
from peakline._estimate.steps import EnoughSteps, counted_steps

FITS = 0
SCRIPT_FAILED = 1
DOES_NOT_FIT = 3


@dataclass(frozen=True)
class Outcome:
    status: int  # of the script: 0, or what it failed with
    steps: int
    out_of_memory: str | None  # torch's words, when that is what ended the script


def run_script(
    run: Callable[[], None], steps: int, on_failure: Callable[[], None] = lambda: None
) -> Outcome:
    """Runs it until it ends by itself or has done enough steps.

    `on_failure` is called when memory has run out, while the script's tensors still live.
    """
    with _stdout_to_stderr(), counted_steps(steps) as count:
        try:
            run()
            status = 0
        except EnoughSteps:
            status = 0
        except SystemExit as end:
            status = _script.exit_status(end.code)
        except torch.OutOfMemoryError as error:
            on_failure()
            return Outcome(0, count.done, str(error))
        except KeyboardInterrupt as error:
            _script.show(error)
            status = _script.INTERRUPTED
        except BaseException as error:
            _script.show(error)
            status = 1
    return Outcome(status, count.done, None)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """What the script prints is progress; stdout is for the answer."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
