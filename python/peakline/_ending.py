"""Exceptions of peakline's own that end a script from inside, named in this one place.

None is an Exception: a script's own handlers must not swallow it. Whoever finds a reason to end the
script raises a subclass of `Ending`; `peakline estimate` then answers for what ran.
"""

from __future__ import annotations

TIME_IS_UP = 124  # as `timeout` says it
TERMINATED = 143  # as a shell says it of SIGTERM
SO_FAR = ", so this is the memory of what ran before"


class Ending(BaseException):
    """The text of the exception says why, as a whole sentence without a full stop."""

    status = 0  # what the estimate exits with
    partial = False  # more of the script would have had to run for a whole answer


class EnoughSteps(Ending):
    """The steps that were asked for are done, and what follows them was seen where it can be."""


class TimeIsUp(Ending):
    status = TIME_IS_UP
    partial = True


class Terminated(Ending):
    """Somebody sent SIGTERM: a job scheduler, `timeout`, `kill`."""

    status = TERMINATED
    partial = True


class EndlessQuestion(Ending):
    """A loop waits for a value that nobody can know, and that does not come."""

    status = TIME_IS_UP
    partial = True


class ScriptExited(Ending):
    """The script called os._exit, which ends a process on the spot."""

    partial = True

    def __init__(self, status: int) -> None:
        super().__init__(f"the script ended itself with os._exit({status})")
        self.script_status = status & 0xFF


class EpochCut(StopIteration):
    """What a DataLoader that is ended early raises. A script that expects more batches fails by
    it, and that is no failure of the script's."""


def caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether `kind` stands behind `error`: as itself, its cause, or what was being handled."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
