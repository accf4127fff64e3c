"""Which allocations are recorded with the lines of Python that asked for them."""

from __future__ import annotations

import functools
import os
import re
import sysconfig
from typing import Any, Literal, get_args

import torch

Stacks = Literal["all", "large", "off"]

_LARGE = 1 << 20
_FROM_BYTES: dict[str, int | None] = {"all": 0, "large": _LARGE, "off": None}
# ".../qq/cqqjcqu6l….py": a folder for two letters of a hash.
_OF_INDUCTOR = re.compile(r"/([a-z0-9]{2})/[a-z0-9]\1[a-z0-9]{37,}\.py$|/torchinductor_")
_HERE = os.path.dirname(os.path.abspath(__file__))


def check(stacks: str) -> None:
    if stacks not in _FROM_BYTES:
        known = ", ".join(f'"{name}"' for name in get_args(Stacks))
        raise ValueError(f"stacks={stacks!r}: choose one of {known}")


def session_arguments(
    stacks: str, source: bool, cpp: bool
) -> tuple[int | None, bool, list[str], list[str], bool]:
    """From how many bytes on, with the lines' text or not, folded folders, folders left out, and
    whether calls of C++ are wanted, too."""
    torch_folder = os.path.dirname(os.path.abspath(torch.__file__))
    # torch's comes first: it counts as a library wherever it lies.
    library = [torch_folder, *dict.fromkeys(_stdlib())]
    return _FROM_BYTES[stacks], source, library, [_HERE], cpp


def own_place(stack: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The innermost place of the program's own, of a recorded stack as JSON has it; of a stack
    without one the innermost."""
    own = (place for place in stack if place["line"] and not is_library(place["file"]))
    return next(own, stack[0] if stack else None)


@functools.cache
def is_library(file: str) -> bool:
    """Of torch or of Python itself, or what Inductor has written."""
    if _OF_INDUCTOR.search(file):
        return True
    _, _, (of_torch, *of_python), *_ = session_arguments("all", source=True, cpp=False)
    if file.startswith((os.path.join(of_torch, ""), "<frozen ")):
        return True
    is_installed = "/site-packages/" in file or "/dist-packages/" in file
    return not is_installed and file.startswith(tuple(os.path.join(one, "") for one in of_python))


def _stdlib() -> list[str]:
    paths: dict[str, Any] = sysconfig.get_paths()
    return [paths["stdlib"], paths["platstdlib"], os.path.dirname(os.path.abspath(os.__file__))]
