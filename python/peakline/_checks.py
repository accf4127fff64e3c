"""Arguments of the public functions: what is of another kind is refused with one sentence.

`name` is how a caller writes it: "lines(n=…)".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from peakline import _C

T = TypeVar("T")


def refused(name: str, takes: str, value: object) -> TypeError:
    return TypeError(f"{name} takes {takes}, and got {shown(value)}")


def shown(value: object) -> str:
    """What is no plain value may be of any length, and of many lines."""
    plain = value is None or isinstance(value, (str, bytes, int, float, list, tuple, dict))
    text = repr(value)[:80] if plain else ""
    return text if plain and text.isprintable() else f"an object of class {type(value).__name__}"


def whole(value: object, name: str, least: int = 0, instead: str = "") -> int:
    """`instead` says what may have been meant."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{refused(name, 'a whole number', value)}{instead}")
    number = int(value.__index__())
    if number < least:
        raise ValueError(f"{name} takes {least} or more, and got {number}")
    return number


def how_many(value: object, name: str) -> int | None:
    """Of a table's rows; None: all."""
    return None if value is None else rows(value, name)


def rows(value: object, name: str) -> int:
    is_device = isinstance(value, str) or (hasattr(value, "index") and hasattr(value, "type"))
    instead = f"; a device is given as device={str(value)[:80]!r}" if is_device else ""
    return whole(value, name, instead=instead)


def share(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refused(name, "a share from 0 to 1", value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} is a share from 0 to 1, and {value} was given")
    return float(value)


def flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise refused(name, "True or False", value)
    return value


def size(value: object, name: str) -> int | None:
    """Bytes, as a number or as text; None where none is given."""
    if value is None:
        return None
    if isinstance(value, str):
        return _C.parse_size(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise refused(name, 'a size (bytes, or text such as "24GiB")', value)
    return whole(value, name, 1)


def path(value: object, name: str, takes: str = "a path") -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise refused(name, takes, value)
    return os.fspath(value)


def function(value: T, name: str) -> T:
    if not callable(value):
        raise refused(name, "a function", value)
    return value


def of_kind(value: object, kind: type[T], name: str, takes: str) -> T:
    if not isinstance(value, kind):
        raise refused(name, takes, value)
    return value


def mapping(value: Any, name: str, takes: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refused(name, takes, value)
    return value


def words(value: Any, name: str, takes: str) -> list[str]:
    """Several, and not one text, whose letters would be taken for them."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise refused(name, takes, value)
    return list(value)


def numbers_by_name(value: Any, name: str, takes: str) -> Mapping[str, Sequence[int]]:
    for key, values in mapping(value, name, takes).items():
        one = f"{name}[{key!r}]"
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise refused(one, "whole numbers, such as [1, 2, 4] or range(1, 65)", values)
        if not values:
            raise ValueError(f"{one} has no values, so there is nothing to try")
        for number in values:
            whole(number, one, -(2**62))
    return mapping(value, name, takes)
