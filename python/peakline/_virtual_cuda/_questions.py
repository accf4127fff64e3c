"""Who asked for values that nobody can know, and what may have come out otherwise because of it."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch

from peakline._ending import EndlessQuestion
from peakline._patches import Patches
from peakline._virtual_cuda import _bounded_loops
from peakline._virtual_cuda._counted import is_only_counted
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._made_up import MadeUp

ENDLESS = 10_000  # questions of one line while the program does not go on
_TOLD_LINES = 3
_FILLS = "fill a table"  # part by part, which comes to an end
_OFTEN = 50  # such questions of one line, over so many seconds: it may be waiting
_PATIENCE = 5.0
_clock = time.monotonic  # the real one, whatever a virtual GPU does to time

_LIBRARIES = (Path(torch.__file__).parent, Path(np.__file__).parent, Path(__file__).parents[1])
_HIDDEN = tuple(str(folder) + os.sep for folder in _LIBRARIES)
_DECIDED = {
    "branch": "which way the program goes depends on values that nobody can know, at {lines}; "
    "--values changes the answers",
    "size": "sizes depend on values that nobody can know, at {lines}; masks and nonzero() count in "
    "full where --values nonzero=SHARE does not say otherwise, and --values changes other answers",
}
_AGAIN = (
    "{line} asked {count:,} times for a value that nobody can know, with no optimizer step, batch "
    "or generated token in between (--values, in Python values=, changes the answer)"
)


_WAITING = (
    "{line} has asked {count:,} times in {seconds:.0f} seconds for a value that nobody can know, "
    "with no optimizer step, batch or generated token in between; if a loop there waits for it, "
    "--values (in Python values=) changes the answer, and after {endless:,} times the estimate "
    "ends as partial"
)


class Questions:
    """Hears of every value that was made up. Only what may change the answer is told, by its line:
    sizes and branches, not numbers that may just be printed."""

    def __init__(self, clock: Callable[[], float] = _clock) -> None:
        self._clock = clock
        self._first: dict[tuple[str, int], float] = {}  # since it last went on
        self._waiting: set[tuple[str, int]] = set()  # lines that were told of
        self._told: dict[str, Counter[str]] = {kind: Counter() for kind in _DECIDED}
        self._since_then: Counter[tuple[str, int]] = Counter()
        self._thread = threading.local()
        self.made_up = MadeUp(self.used)

    def asked(self, what: str, decides: str) -> None:
        if getattr(self._thread, "printing", False):
            return
        frame = asking_frame(sys._getframe(1))
        filename, number = asking_line(frame)
        listing = decides == "numbers" and getattr(self._thread, "listing", False)
        if decides == "numbers":
            decides = "size" if listing else ""
        if (listing or what == "item") and decides == "size" and frame and is_only_counted(frame):
            decides = ""
        if decides:
            self._told[decides][_short(filename, number)] += 1
        if what == _FILLS:
            return
        self._since_then[filename, number] += 1
        self._tell_waiting((filename, number))
        if self._since_then[filename, number] >= ENDLESS:
            self._since_then.clear()  # cleaning up may ask again
            line = _short(filename, number)
            raise EndlessQuestion(_AGAIN.format(line=line, count=ENDLESS))

    def used(self, decides: str) -> None:
        """A whole number that was made up earlier becomes a size, or decides a branch, just now."""
        frame = asking_frame(sys._getframe(1))
        printing = getattr(self._thread, "printing", False)
        if frame is None or printing or not _may_use_torch(frame) or is_only_counted(frame):
            return
        self._told[decides][_short(*asking_line(frame))] += 1

    def _tell_waiting(self, line: tuple[str, int]) -> None:
        """Nobody shall wonder for minutes what an estimate does."""
        now = self._clock()
        seconds = now - self._first.setdefault(line, now)
        count = self._since_then[line]
        if line in self._waiting or count < _OFTEN or seconds < _PATIENCE:
            return
        self._waiting.add(line)
        text = _WAITING.format(line=_short(*line), count=count, seconds=seconds, endless=ENDLESS)
        print(f"peakline: {text}", file=sys.stderr, flush=True)

    def went_on(self) -> None:
        """The program made a step, or came to the next turn of a loop that ends by itself."""
        self._since_then.clear()
        self._first.clear()

    def sentences(self) -> list[str]:
        return [
            sentence.format(lines=_listed(list(self._told[kind])))
            for kind, sentence in _DECIDED.items()
            if self._told[kind]
        ]

    def tolist(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Whole numbers that a program wants as a list are sizes of something."""
        return self._during("listing", original)

    def text(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A tensor as text (Dynamo makes some for its guards) asks for every number, and only looks
        different for another."""
        return self._during("printing", original)

    def _during(self, what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if what == "listing" and args and self.made_up.holds(args[0]):
                self.used("size")
            before = getattr(self._thread, what, False)
            setattr(self._thread, what, True)
            try:
                return original(*args, **kwargs)
            finally:
                setattr(self._thread, what, before)

        return call


def install(patches: Patches, engine: Engine) -> Questions:
    questions = Questions()
    patches.set(torch.Tensor, "tolist", questions.tolist(torch.Tensor.tolist))
    patches.set(torch._tensor_str, "_str", questions.text(torch._tensor_str._str))
    questions.made_up.install(patches, engine)
    engine.on_unknown(questions.asked)
    patches.on_restore(lambda: engine.on_unknown(None))
    _bounded_loops.install(patches, questions.went_on)
    return questions


def asking_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost one outside of torch, NumPy and peakline, or the innermost of all."""
    innermost = frame
    while frame is not None:
        if not frame.f_code.co_filename.startswith((*_HIDDEN, "<frozen")):
            return frame
        frame = frame.f_back
    return innermost


def asking_line(frame: FrameType | None) -> tuple[str, int]:
    frame = asking_frame(frame)
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _may_use_torch(frame: FrameType) -> bool:
    """Not a library's module without any of torch: a game that is given an action, or a score."""
    if not _is_a_librarys(Path(frame.f_code.co_filename)):
        return True
    names = (
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in list(frame.f_globals.values())
    )
    return any(str(name).partition(".")[0] == "torch" for name in names)


def _is_a_librarys(path: Path) -> bool:
    """Installed, or elsewhere than the program is."""
    main = Path(str(getattr(sys.modules["__main__"], "__file__", "") or "")).resolve().parent
    installed = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return installed or not any(map(path.resolve().is_relative_to, (Path.cwd(), main)))


def _short(filename: str, number: int) -> str:
    """As people name the file: from where they are, or from where packages are installed."""
    path = Path(filename)
    if "site-packages" in path.parts:
        path = Path(*path.parts[path.parts.index("site-packages") + 1 :])
    elif path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{path}:{number}"


def _listed(lines: list[str]) -> str:
    shown = lines[:_TOLD_LINES]
    rest = len(lines) - len(shown)
    if rest:
        shown.append(f"{rest} more line{'' if rest == 1 else 's'}")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]
