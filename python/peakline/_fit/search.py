"""Finds the largest value that fits, in few tries.

What a step needs grows nearly in a straight line with its batch. So two tries that fit say where
the limit is met, and bisection takes over where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_ASTRAY = 3  # tries by the straight line that did not halve what is left; then bisection
_CLOSE = 8  # kernels like multiples of it: the likeliest to fit where a smaller value did not


@dataclass(frozen=True)
class Try:
    fits: bool
    need: int = 0  # bytes allocated, which grow more evenly than those reserved; 0: not known
    room: int = 0  # bytes that could be reserved besides


Ask = Callable[[Sequence[int]], Sequence[Try]]  # all of them, perhaps at once


@dataclass
class Found:
    value: int | None = None  # None: not even the smallest fits
    tries: dict[int, Try] = field(default_factory=dict)

    @property
    def exceptions(self) -> list[tuple[int, int]]:
        """(a value that does not fit, a larger one that does), of those tried."""
        fitting = [value for value, one in self.tries.items() if one.fits]
        return [
            (value, min(larger))
            for value, one in sorted(self.tries.items())
            if not one.fits and (larger := [other for other in fitting if other > value])
        ]


def largest(values: Sequence[int], ask: Ask, jobs: int = 1) -> Found:
    """`values` ascend. Asks for up to `jobs` of them at a time."""
    return _Search(values, ask, max(1, jobs)).run()


class _Search:
    """The answer lies in [low, high): `low` fits, `high` does not."""

    def __init__(self, values: Sequence[int], ask: Ask, jobs: int) -> None:
        self._values = values
        self._ask = ask
        self._jobs = jobs
        self._found = Found()
        self._low = -1
        self._high = len(values)

    def run(self) -> Found:
        self._try([0])
        if self._low < 0:
            return self._found
        while True:
            self._narrow()
            self._found.value = self._values[self._low]
            beyond = self._beyond()
            if beyond is None:
                return self._found
            self._try([beyond])
            if self._low < beyond:
                return self._found

    def _narrow(self) -> None:
        width, astray = self._high - self._low, 0
        while self._high - self._low > 1:
            self._try(self._points(self._guess() if astray < _ASTRAY else None))
            astray += 1
            if self._high - self._low <= width // 2:
                width, astray = self._high - self._low, 0

    def _try(self, indices: Sequence[int]) -> None:
        wanted = [self._values[index] for index in indices]
        for value, one in zip(wanted, self._ask(wanted), strict=True):
            self._found.tries[value] = one
        tried = {
            index: self._found.tries[value] for index, value in zip(indices, wanted, strict=True)
        }
        for index in sorted(tried):
            if tried[index].fits and index > self._low:
                self._low = index
        failed = [index for index in tried if not tried[index].fits and index > self._low]
        before = self._high if self._high > self._low else self._end()
        self._high = min([*failed, before])

    def _end(self) -> int:
        """The smallest index above `low` that was seen not to fit."""
        over = [
            index
            for index in range(self._low + 1, len(self._values))
            if not self._found.tries.get(self._values[index], Try(True)).fits
        ]
        return over[0] if over else len(self._values)

    def _points(self, guess: int | None) -> list[int]:
        inside = self._high - self._low - 1
        parts = min(self._jobs, inside)
        step = (inside + 1) / (parts + 1)
        points = {self._low + max(1, round(step * (part + 1))) for part in range(parts)}
        if guess is not None:
            points.add(guess)
            points = {guess} if self._jobs == 1 else points
        return sorted(point for point in points if self._low < point < self._high)[: self._jobs + 1]

    def _guess(self) -> int | None:
        """Where a straight line through the two largest tries that fit leaves no room.

        None: the line leads beyond what was seen not to fit, or nowhere.
        """
        known = sorted(
            (value, one) for value, one in self._found.tries.items() if one.fits and one.need
        )
        if len(known) < 2:
            return min(self._low + max(1, self._low + 1), self._high - 1)
        (v1, smaller), (v2, larger) = known[-2:]
        slope = (larger.need - smaller.need) / (v2 - v1)
        if slope <= 0:
            return None
        wanted = v2 + larger.room / slope
        if self._high < len(self._values) and wanted >= self._values[self._high]:
            return None
        return self._last_up_to(wanted)

    def _last_up_to(self, wanted: float) -> int:
        low, high = self._low + 1, self._high - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._values[middle] <= wanted else (low, middle - 1)
        return low

    def _beyond(self) -> int | None:
        """One value above the smallest that does not fit: what fits need not be all below it."""
        for index in range(self._high + 1, min(self._high + 1 + _CLOSE, len(self._values))):
            value = self._values[index]
            if value not in self._found.tries and value % _CLOSE == 0:
                return index
        return None
