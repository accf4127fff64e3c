"""Ends a script from outside: when its time is up, or when it calls os._exit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from peakline._ending import Ending, ScriptExited, TimeIsUp
from peakline._patches import Patches

_AGAIN_S = 1.0  # a script's bare `except:` may have swallowed it
_GRACE_S = 10.0  # for a script that waits in code that no signal interrupts

GiveUp = Callable[[Ending], None]  # answers for what ran, and ends the process


@contextlib.contextmanager
def ending_after(seconds: float | None, give_up: GiveUp) -> Iterator[None]:
    """Raises TimeIsUp in the main thread, and calls `give_up` when that does not end the script."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    sentence = f"the time was up ({seconds:g} s)"

    def ring(number: int, frame: Any) -> None:
        raise TimeIsUp(sentence)

    late = threading.Timer(seconds + _GRACE_S, lambda: give_up(TimeIsUp(sentence)))
    late.daemon = True
    late.start()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        late.cancel()


@contextlib.contextmanager
def caught_os_exit(give_up: GiveUp) -> Iterator[None]:
    """os._exit ends the script, and not the process that has the answer. Its children are free."""
    leave = os._exit
    process: int | None = os.getpid()

    def leave_script(status: int) -> Any:
        if os.getpid() != process:  # a child, or somebody who kept this when the script was over
            leave(status)
        if threading.current_thread() is threading.main_thread():
            raise ScriptExited(status)
        give_up(ScriptExited(status))

    with Patches() as patches:
        patches.set(os, "_exit", leave_script)
        try:
            yield
        finally:
            process = None
