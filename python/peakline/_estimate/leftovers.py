"""Threads and processes of the script's own, which may run on when it has ended.

Python waits for them at its end. A script that was ended early never tells them to stop, so
they are not waited for, and its processes are ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import thread as executors
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import NoReturn

from peakline import _C
from peakline._patches import Patches
from peakline._virtual_cuda._processes import runs_here

_LEAVE = os._exit
_GRACE_S = 2.0
_NOTHING = "the script used no GPU memory, so there is nothing to estimate"
_NOT_FOLLOWED = (
    "; of the processes that a script starts, those are looked into whose function calls "
    "backward() or init_process_group(), and of {processes} none does so in its own text"
)
_NOT_COUNTED = "what {processes} that the script started may do on a GPU is not counted"


class Leftovers:
    """Of one script."""

    def __init__(self) -> None:
        self._others = set(threading.enumerate())
        self._started = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        start = BaseProcess.start

        def counted(process: BaseProcess) -> None:
            start(process)
            # A DataLoader's worker is a daemon.
            self._started += not process.daemon and not runs_here(process)

        with Patches() as patches:
            patches.set(BaseProcess, "start", counted)
            yield

    def wait(self) -> None:
        """As Python does when a script has come to its end."""
        for thread in _waited_for():
            if thread not in self._others and thread not in executors._threads_queues:
                thread.join()
        for process in active_children():
            if not process.daemon:
                process.join()

    def end_processes(self) -> None:
        left = [process for process in active_children() if not process.daemon]
        for process in left:
            process.terminate()
        until = time.monotonic() + _GRACE_S
        for process in left:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()

    def why_nothing(self) -> str:
        """Of a script that used no GPU memory."""
        if not self._started:
            return _NOTHING
        return _NOTHING + _NOT_FOLLOWED.format(processes=self._processes())

    def _processes(self) -> str:
        return _C.counted(self._started, "process", "processes")

    def sentences(self) -> list[str]:
        return [_NOT_COUNTED.format(processes=self._processes())] if self._started else []


def leave(status: int) -> NoReturn:
    """Ends this process as sys.exit does, whatever the script's threads wait for."""
    until = time.monotonic() + _GRACE_S
    for thread in _waited_for():
        if thread not in executors._threads_queues:  # nothing tells whether one of these is idle
            thread.join(max(0.0, until - time.monotonic()))
    if _waited_for():
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        _LEAVE(status)
    sys.exit(status)


def _waited_for() -> list[threading.Thread]:
    mine = threading.current_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not mine]
