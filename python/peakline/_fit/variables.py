"""What `--vary` and `--curve` name, and how a script gets a value of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_MARK = re.compile(r"(?:.*=)?@([A-Za-z_][\w-]*)")
_FORM = "takes NAME=A..B or NAME=A,B,C with whole numbers, and got '{text}'"


@dataclass(frozen=True)
class Variable:
    name: str
    values: Sequence[int]  # ascending

    @property
    def is_range(self) -> bool:
        return isinstance(self.values, range)

    def __str__(self) -> str:
        """As `--vary` takes it."""
        if self.is_range:
            return f"{self.name}={self.values[0]}..{self.values[-1]}"
        return f"{self.name}={','.join(map(str, self.values))}"


def parse(text: str) -> Variable:
    """`batch-size=1..512` or `length=1024,4096`. Raises ValueError with one sentence."""
    name, equals, given = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise ValueError(_FORM.format(text=text))
    span = _RANGE.fullmatch(given)
    if span:
        low, high = int(span[1]), int(span[2])
        if low > high:
            raise ValueError(f"{name} goes from {low} to {high}, which is nothing")
        return Variable(name, range(low, high + 1))
    words = given.split(",")
    if not all(word.isdigit() for word in words):
        raise ValueError(_FORM.format(text=text))
    return Variable(name, sorted({int(word) for word in words}))


def spread(variable: Variable) -> list[int]:
    """A range in steps of at most a half: 1, 2, 3, 4, 6, 8, 12, 16, ..."""
    if not variable.is_range:
        return list(variable.values)
    low, high = variable.values[0], variable.values[-1]
    values, power = {low, high}, 1
    while power <= high:
        values |= {value for value in (power, power + power // 2) if low <= value <= high}
        power *= 2
    return sorted(values)


def doubling(variable: Variable) -> Variable:
    """A range in steps that double, for a curve: 1024..32768 has six points."""
    if not variable.is_range:
        return variable
    low, high = variable.values[0], variable.values[-1]
    points, value = [], max(low, 1)
    while value < high:
        points.append(value)
        value *= 2
    return Variable(variable.name, [*points, high])


def with_values(words: Sequence[str], values: Mapping[str, int]) -> list[str]:
    """The script's arguments: N wherever they say `@name`, and `--name N` behind them otherwise.

    A script that calls it `--batch_size` says so: `-- --batch_size @batch-size`.
    """
    made = list(words)
    # The longest name first: @batch-size-eval is not @batch-size.
    for name in sorted(values, key=len, reverse=True):
        mark = re.compile(rf"@{re.escape(name)}(?![\w-])")
        if any(mark.search(word) for word in made):
            made = [mark.sub(str(values[name]), word) for word in made]
        else:
            made += [f"--{name}", str(values[name])]
    return made


def unknown_mark(words: Sequence[str], names: Sequence[str]) -> str | None:
    """An `@name` among the script's arguments that names no variable, nor a file to read from."""
    for word in words:
        mark = _MARK.fullmatch(word)
        if mark and mark[1] not in names and not os.path.exists(mark[1]):
            return mark[1]
    return None


def shown(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
