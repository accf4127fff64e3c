"""Which allocations are recorded with the lines of Python that asked for them."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from typing import Any, Literal, get_args

import torch

from peakline import _C

Stacks = Literal["all", "large", "off"]

_LARGE = 1 << 20
_FROM_BYTES: dict[str, int | None] = {"all": 0, "large": _LARGE, "off": None}
_HERE = os.path.dirname(os.path.abspath(__file__))


def check(stacks: str) -> None:
    if not isinstance(stacks, str) or stacks not in _FROM_BYTES:
        known = ", ".join(f'"{name}"' for name in get_args(Stacks))
        raise ValueError(f"stacks={stacks!r}: choose one of {known}")


def session_arguments(
    stacks: str, source: bool, cpp: bool
) -> tuple[int | None, bool, list[str], list[str], bool, bool]:
    """From how many bytes on, with the lines' text or not, folded folders, folders left out,
    whether calls of C++ are wanted, too, and whether the outermost call is our launcher's."""
    return _FROM_BYTES[stacks], source, _library(), [_HERE], cpp, _is_launched()


@functools.cache
def _library() -> list[str]:
    torch_folder = os.path.dirname(os.path.abspath(torch.__file__))
    # torch's comes first: it counts as a library wherever it lies.
    return [torch_folder, *dict.fromkeys(_stdlib())]


def _is_launched() -> bool:
    """By the C++ program, as `python -c PROGRAM peakline.MODULE ARGS`."""
    option, _, module = [*sys.orig_argv[1:4], "", "", ""][:3]
    return option == "-c" and module.startswith("peakline._")


def own_place(stack: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The innermost place of the program's own, of a recorded stack as JSON has it; of a stack
    without one the innermost."""
    own = (place for place in stack if place["line"] and not is_library(place["file"]))
    return next(own, stack[0] if stack else None)


@functools.cache
def is_library(file: str) -> bool:
    """Of torch or of Python itself, or what Inductor has written."""
    return _C.is_library_file(file, _library())


def _stdlib() -> list[str]:
    paths: dict[str, Any] = sysconfig.get_paths()
    return [paths["stdlib"], paths["platstdlib"], os.path.dirname(os.path.abspath(os.__file__))]
