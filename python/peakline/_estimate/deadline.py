"""Ends a script from outside: when its time is up, on SIGTERM, when it calls os._exit, or with one
of its threads."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from peakline._ending import Ending, ScriptExited, Terminated, TimeIsUp
from peakline._patches import Patches

_AGAIN_S = 1.0  # a script's bare `except:` may have swallowed it
_GRACE_S = 10.0  # for a script that waits in code that no signal interrupts
_LAST_GRACE_S = 2.0  # the same after SIGTERM, which SIGKILL often follows within seconds

GiveUp = Callable[[Ending], None]  # answers for what ran, and ends the process


@contextlib.contextmanager
def ending_after(seconds: float | None, give_up: GiveUp) -> Iterator[None]:
    """Raises TimeIsUp in the main thread, and calls `give_up` when that does not end the script."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    sentence = f"the time was up ({seconds:g} s)"

    has_ended = False

    def ring(number: int, frame: Any) -> None:
        if not has_ended:
            raise TimeIsUp(sentence)

    late = threading.Timer(seconds + _GRACE_S, lambda: give_up(TimeIsUp(sentence)))
    late.daemon = True
    late.start()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        has_ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        late.cancel()


@contextlib.contextmanager
def ending_on_sigterm(give_up: GiveUp) -> Iterator[None]:
    """Raises Terminated in the main thread, and calls `give_up` when that does not end the script.
    An Ending that was raised in another thread, which trains for example, comes the same way.

    A script's own handler takes the place of this one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()
    terminated = Terminated("the script was ended by SIGTERM")
    in_thread: list[Ending] = []

    def reason() -> Ending:
        return in_thread[0] if in_thread else terminated

    def end_of_thread(end: Ending) -> None:
        in_thread.append(end)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def ring(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process
        if os.getpid() != process:  # a DataLoader's worker
            os.kill(os.getpid(), signal.SIGTERM)
            return
        raise reason()

    with _watched(lambda: give_up(reason())), _endings_of_threads(end_of_thread):
        before = signal.signal(signal.SIGTERM, ring)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _endings_of_threads(ended: Callable[[Ending], None]) -> Iterator[None]:
    """Calls `ended` where an Ending has ended a thread, which Python alone would only print."""
    print_it = threading.excepthook

    def hook(args: Any) -> None:
        if isinstance(args.exc_value, Ending):
            ended(args.exc_value)
        else:
            print_it(args)

    with Patches() as patches:
        patches.set(threading, "excepthook", hook)
        yield


@contextlib.contextmanager
def _watched(give_up: Callable[[], None]) -> Iterator[None]:
    """Calls `give_up` when SIGTERM has come and the block still runs some time later.

    Python's handlers wait for the main thread; the bytes that signals write do not.
    """
    signals, written = os.pipe()
    os.set_blocking(written, False)
    over = threading.Event()

    def watch() -> None:
        while number := os.read(signals, 1):
            if number[0] == signal.SIGTERM and not over.wait(_LAST_GRACE_S):
                give_up()
        os.close(signals)

    threading.Thread(target=watch, daemon=True).start()
    before = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    _quiet_in_children()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(written)


@functools.cache
def _quiet_in_children() -> None:
    """A child's signals are its own: it must not write where its parent listens."""
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


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
