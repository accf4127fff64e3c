"""Finds the largest value that fits, in few tries.

What a step needs grows nearly in a straight line with its batch. So two tries that fit say where
no room is left. Where they always end too early, strides that double go on from the largest that
fits; bisection does the rest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_ASTRAY = 4  # guesses that did not halve what is left; then no more of them
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
    """`values` ascend. Asks for up to `jobs` of them at a time, and for none twice.

    What fits need not be everything below what does not. So one more value is tried above that.
    Where it fits, the search goes on: among the multiples of 8, and then between two of them.
    """
    tries: dict[int, Try] = {}
    value = _Search(values, ask, jobs, tries).run()
    close = None if value is None else _close_above(value, values, tries)
    if close is not None:
        multiples = _multiples(values, close)
        if _Search(multiples, ask, jobs, tries).run() is not None:
            value = _Search(values, ask, jobs, tries).run()
    return Found(value, tries)


def _close_above(value: int, values: Sequence[int], tries: dict[int, Try]) -> int | None:
    """The first multiple of 8 above the smallest that does not fit, if it was not tried."""
    failed = [other for other in tries if other > value]
    if not failed:
        return None
    after = bisect_right(values, min(failed))
    near = [other for other in values[after : after + _CLOSE] if other % _CLOSE == 0]
    return near[0] if near and near[0] not in tries else None


def _multiples(values: Sequence[int], first: int) -> Sequence[int]:
    """Those of 8 from `first`, which is one, to the end."""
    from_first = values[bisect_left(values, first) :]
    if isinstance(from_first, range):
        return from_first[::_CLOSE]
    return [value for value in from_first if value % _CLOSE == 0]


class _Search:
    """The answer lies in [low, high): `low` fits, `high` does not. What `tries` has is known."""

    def __init__(self, values: Sequence[int], ask: Ask, jobs: int, tries: dict[int, Try]) -> None:
        self._values = values
        self._ask = ask
        self._jobs = max(1, jobs)
        self._tries = tries
        self._look()

    def run(self) -> int | None:
        if self._low < 0 < self._high:
            self._try([0])
        if self._low < 0:
            return None
        self._narrow()
        return self._values[self._low]

    def _narrow(self) -> None:
        width, astray, stride = self._high - self._low, 0, 1
        while self._high - self._low > 1:
            guess = self._guess() if astray < _ASTRAY else None
            if astray >= _ASTRAY and self._high == len(self._values):
                # Every guess fitted, so the last ones were near.
                guess = self._near(stride)
                stride *= 2
            self._try(self._points(guess))
            astray += self._high - self._low > width // 2
            width = self._high - self._low

    def _try(self, indices: Sequence[int]) -> None:
        wanted = [self._values[index] for index in indices]
        self._tries.update(zip(wanted, self._ask(wanted), strict=True))
        self._look()

    def _look(self) -> None:
        """Of what is known, the largest that fits, and the smallest above it that does not."""
        known = self._known()
        self._low = max((index for index, one in known.items() if one.fits), default=-1)
        over = [index for index in known if index > self._low]
        self._high = min(over, default=len(self._values))

    def _known(self) -> dict[int, Try]:
        """The tries of these values, in their order."""
        found = {}
        for value in sorted(self._tries):
            index = bisect_left(self._values, value)
            if index < len(self._values) and self._values[index] == value:
                found[index] = self._tries[value]
        return found

    def _points(self, guess: int | None) -> list[int]:
        inside = self._high - self._low - 1
        parts = min(self._jobs, inside)
        step = (inside + 1) / (parts + 1)
        points = {self._low + max(1, round(step * (part + 1))) for part in range(parts)}
        if guess is not None:
            points.add(guess)
            points = {guess} if self._jobs == 1 else points
        return sorted(point for point in points if self._low < point < self._high)[: self._jobs + 1]

    def _near(self, stride: int) -> int | None:
        """None: the middle is as near."""
        ahead = self._low + stride
        return ahead if ahead < (self._low + self._high) // 2 else None

    def _guess(self) -> int | None:
        """Where a straight line through the two largest tries that fit leaves no room.

        None: the line leads beyond what was seen not to fit, or nowhere.
        """
        known = [
            (self._values[index], one)
            for index, one in self._known().items()
            if one.fits and one.need
        ]
        if len(known) < 2:
            return min(self._low + max(1, self._low + 1), self._high - 1)
        (v1, smaller), (v2, larger) = known[-2:]
        # The faster of both: reserved memory meets the limit, but may shrink from one to the next.
        slope = max(larger.need - smaller.need, smaller.room - larger.room) / (v2 - v1)
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
