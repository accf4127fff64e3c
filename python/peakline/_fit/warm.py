"""One warm process for all tries: each is a fork of it, and imports nothing that another has.

What takes long in a short estimate is importing torch and the libraries that the script uses. This
process imports them once, on a virtual GPU (a library may look for one as it is imported). It never
runs a line of the script: that is each fork's own.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

Job = Callable[[], tuple[int, dict[str, Any] | None]]  # the exit status, and the answer
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})


@dataclass
class Outcome:
    """What a fork has said."""

    status: int = 1  # if it dies before it can say
    answer: dict[str, Any] | None = None
    output: str = ""  # what the script printed
    imported: list[str] = field(default_factory=list)  # installed modules, in order


Done = Callable[[int, Outcome], None]


def run_all(jobs: Sequence[Job], at_once: int = 1, done: Done | None = None) -> list[Outcome]:
    """Runs each in a fork of this process; the outcomes in the same order.

    `done` is told of each as soon as it has ended.
    """
    outcomes: dict[int, Outcome] = {}
    running: dict[Connection, tuple[int, _Fork]] = {}
    waiting = list(enumerate(jobs))
    try:
        while waiting or running:
            while waiting and len(running) < max(1, at_once):
                number, job = waiting.pop(0)
                fork = _Fork(job)
                running[fork.pipe] = (number, fork)
            for pipe in wait(list(running)):
                number, fork = running.pop(pipe)  # type: ignore[call-overload]
                outcomes[number] = fork.outcome()
                if done is not None:
                    done(number, outcomes[number])
    except BaseException:
        for _, fork in running.values():
            fork.end()
        raise
    return [outcomes[number] for number in range(len(jobs))]


def import_installed(names: Iterable[str]) -> None:
    """Imports what the scripts' forks would, each for itself. What cannot be imported is left to
    them, to fail or to do without."""
    missing = [name for name in names if name not in sys.modules]
    if not missing:
        return
    from peakline.virtual_gpu import virtual_gpu

    with contextlib.suppress(Exception), _silenced(), virtual_gpu():
        for name in missing:
            with contextlib.suppress(BaseException):
                importlib.import_module(name)


def installed_modules(before: set[str]) -> list[str]:
    """Modules of installed packages that were imported since."""
    found = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        if name in before or spec is None or spec.name != name:
            continue
        if isinstance(origin, str) and origin.startswith(_INSTALLED):
            found.append(name)
    return found


def local_files() -> list[str]:
    """The source files of the script's own modules."""
    found = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not path.startswith(_INSTALLED) and os.path.isfile(path):
            found.append(os.path.abspath(path))
    return found


class _Fork:
    def __init__(self, job: Job) -> None:
        self.pipe, theirs = Pipe(duplex=False)
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _run(job, theirs, self._log.fileno())
        theirs.close()

    def outcome(self) -> Outcome:
        try:
            found: Outcome = self.pipe.recv()
        except EOFError:
            found = Outcome()
        self.pipe.close()
        os.waitpid(self._pid, 0)
        self._log.seek(0)
        found.output = self._log.read()
        self._log.close()
        return found

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 15)
        os.waitpid(self._pid, 0)


def _run(job: Job, pipe: Connection, log: int) -> None:
    """In the new process, which ends here."""
    leave = os._exit
    os.dup2(log, 1)
    os.dup2(log, 2)
    before, made = set(sys.modules), Outcome()
    try:
        made.status, made.answer = job()
        made.imported = installed_modules(before)
    except SystemExit as end:
        made.status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    pipe.send(made)
    pipe.close()
    leave(0)


@contextlib.contextmanager
def _silenced() -> Any:
    """Libraries that say hello as they are imported do so once, in the forks."""
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number, _ in kept:
        os.dup2(nowhere, number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)
