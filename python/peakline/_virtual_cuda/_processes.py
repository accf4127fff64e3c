"""Processes that train: others would have no virtual GPU, so one rank of them runs here.

torch.multiprocessing.spawn's runs in its caller's place. A plain `Process` runs in a thread, since
the program goes on beside it, and may have to hand it something.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

import torch.multiprocessing

from peakline._patches import Patches
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._trains import trains

_NOTE = "of the {count} processes that the program starts, only one was run, in this one"
_BESIDE = (
    "of the {count} processes that the program starts to train, only one was run, in this one; "
    "each of the others needs memory of its own, also where they share a GPU"
)


class _Finished:
    """What spawn(join=False) gives: its only process has ended already."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


def install(patches: Patches, notes: Notes) -> None:
    def spawn(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        *rest: Any,
        **kwargs: Any,
    ) -> _Finished | None:
        if nprocs > 1:
            notes.add(_NOTE.format(count=nprocs))
        fn(rank if (rank := _wanted()) < nprocs else 0, *args)
        return None if join else _Finished()

    patches.set(torch.multiprocessing, "spawn", spawn)
    patches.set(torch.multiprocessing, "start_processes", spawn)
    patches.set(BaseProcess, "start", _starting(BaseProcess.start, notes))


def _wanted() -> int:
    """Which of several processes."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def runs_here(process: BaseProcess) -> bool:
    """A process that was started, and is none."""
    return isinstance(getattr(process, "_popen", None), _Here)


def _starting(original: Callable[[BaseProcess], None], notes: Notes) -> Callable[..., None]:
    beside: dict[Any, list[_Here]] = {}  # by what they run, until the program has waited for them

    def start(process: BaseProcess) -> None:
        run = _body(process)
        if process.daemon or not trains(run):  # a daemon serves others: data, or games
            return original(process)
        others = beside.setdefault(run, [])
        if all(one.was_waited_for for one in others):
            others.clear()
        call = _call(process) if len(others) == _wanted() else None

        def begin(_: Any) -> _Here:
            others.append(_Here(process, call))
            return others[-1]

        if len(others) > 0:
            notes.put(_BESIDE, _BESIDE.format(count=len(others) + 1))
        process._Popen = begin  # type: ignore[attr-defined]
        return original(process)

    return start


def _has_target(process: BaseProcess) -> bool:
    return type(process).run is BaseProcess.run


def _body(process: BaseProcess) -> Callable[..., Any]:
    target = getattr(process, "_target", None)
    if _has_target(process):
        return target if target is not None else process.run
    return type(process).run


def _call(process: BaseProcess) -> Callable[[], Any]:
    """What it would do. Its arguments are gone when it has begun."""
    if not _has_target(process):
        return process.run
    own: Any = process
    target, args, kwargs = own._target, own._args, own._kwargs
    return lambda: target(*args, **kwargs) if target else None


class _Here:
    """What stands for a process of the operating system; one that does not run has ended well."""

    def __init__(self, process: BaseProcess, call: Callable[[], Any] | None) -> None:
        self.pid = os.getpid()
        self.returncode: int | None = None if call else 0
        self._name = process.name
        self.was_waited_for = False
        self.sentinel, self._end = os.pipe()
        if call is None:
            os.close(self._end)
            return
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(call,), name=process.name, daemon=True).start()

    def _run(self, call: Callable[[], Any]) -> None:
        status = 0
        try:
            call()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except Exception:
            print(f"Process {self._name}:\n{traceback.format_exc()}", end="", file=sys.stderr)
            status = 1
        finally:
            self._finish(status)

    def _finish(self, status: int) -> None:
        if self.returncode is None:
            self.returncode = status
            os.close(self._end)
            self._ended.set()

    def poll(self, flag: int = 0) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None:
            self._ended.wait(timeout)
        self.was_waited_for |= self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """The program goes on as if it had ended."""
        self._finish(-15)

    kill = interrupt = terminate

    def close(self) -> None:
        os.close(self.sentinel)
