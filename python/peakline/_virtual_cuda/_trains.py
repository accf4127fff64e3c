"""Whether a function trains, read off its code before it runs.

A process that a program starts may train a rank, or load data and play games for ever. What calls
`backward`, or joins a process group, trains; so does what calls a function that does.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_WORDS = {"backward", "init_process_group", "set_device", "DistributedDataParallel"}
_WORDS |= {"Trainer", "Accelerator", "nccl"}
_STANDARD = os.path.dirname(os.__file__)
_MOST = 300  # functions that are looked at


def trains(function: Callable[..., Any]) -> bool:
    """Also where it does so in a function of the program that it names."""
    waiting, met = list(_functions(function)), set[FunctionType]()
    while waiting and len(met) < _MOST:
        one = waiting.pop()
        if one in met or _is_a_librarys(one):
            continue
        met.add(one)
        words = _words(one.__code__)
        if not words.isdisjoint(_WORDS):
            return True
        waiting += _named(one, words)
    return False


def _is_a_librarys(function: FunctionType) -> bool:
    filename = function.__code__.co_filename
    return "site-packages" in filename or filename.startswith((_STANDARD, "<frozen"))


def _words(code: CodeType) -> set[str]:
    """Names and texts in the code, and in that of functions inside it."""
    words = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            words |= _words(constant)
        elif isinstance(constant, str):
            words.add(constant)
    return words


def _named(function: FunctionType, words: set[str]) -> Iterator[FunctionType]:
    for cell in function.__closure__ or ():
        try:
            yield from _functions(cell.cell_contents)
        except ValueError:  # an empty one
            continue
    for word in words:
        found = function.__globals__.get(word)
        if isinstance(found, ModuleType):  # `engine.train(…)`
            inside = vars(found)
            for name in words & inside.keys():
                yield from _functions(inside[name])
        else:
            yield from _functions(found)


def _functions(found: Any) -> Iterator[FunctionType]:
    """A function, what a wrapper or an object calls, or the methods of a class."""
    while isinstance(found, functools.partial):
        found = found.func
    if isinstance(found, FunctionType):
        yield found
    elif isinstance(found, type):
        yield from (own for own in vars(found).values() if isinstance(own, FunctionType))
    elif (bound := getattr(found, "__func__", None)) is not None:
        yield from _functions(bound)
        yield from _functions(type(getattr(found, "__self__", None)))
    elif isinstance(called := vars(type(found)).get("__call__"), FunctionType):
        yield called
