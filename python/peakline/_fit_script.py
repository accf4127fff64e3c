"""`peakline fit`: the C++ program starts it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from peakline import _new_file, _script
from peakline._estimate.arguments import BAD_USAGE, complain
from peakline._fit import arguments, text, variables
from peakline._fit.search import Found, Try, largest
from peakline._fit.tries import DOES_NOT_FIT, Tries, TryFailed
from peakline._fit.variables import Variable

Answer = dict[str, Any]
Values = dict[str, int]


def main(argv: list[str]) -> int:
    orders = arguments.parse(argv)
    search = _Search(orders)
    try:
        answer = search.one() if len(orders.vary) == 1 else search.frontier()
    except TryFailed as failed:
        complain(str(failed))
        return failed.status
    except (ValueError, OSError) as error:
        complain(str(error))
        return BAD_USAGE
    except KeyboardInterrupt:
        complain("interrupted; what was tried is remembered")
        return _script.INTERRUPTED
    if orders.json == "-":
        print(json.dumps(answer))
    else:
        if orders.json:
            _new_file.write_text(orders.json, json.dumps(answer) + "\n")
        print(text.of_fit(answer), end="")
    return 0 if answer["fits"] else DOES_NOT_FIT


class _Search:
    def __init__(self, orders: arguments.Orders) -> None:
        self._orders = orders
        self._tries = Tries(orders)
        self._answers: dict[str, Answer] = {}
        self._rows: list[Answer] = []

    def one(self) -> Answer:
        (variable,) = self._orders.vary
        found = self._largest(variable, variable.values, {})
        answer = self._answer_of(variable, found.value)
        answer["value"] = found.value
        answer["training_value"] = self._training(variable, found)
        return self._finish(answer, found.exceptions)

    def frontier(self) -> Answer:
        """For each value of one, the largest of the other."""
        inner, outer = self._orders.vary
        if inner.is_range and not outer.is_range:
            pass
        elif outer.is_range and not inner.is_range:
            inner, outer = outer, inner
        points: list[Values] = []
        exceptions: list[tuple[int, int]] = []
        values: Sequence[int] = inner.values
        for fixed in variables.doubling(outer).values:
            found = self._largest(inner, values, {outer.name: fixed})
            exceptions += found.exceptions
            if found.value is None:
                break
            points.append({inner.name: found.value, outer.name: fixed})
            if not found.exceptions:  # with more of one, no more of the other
                values = [value for value in values if value <= found.value]
        best = self._answers.get(_key(points[-1])) if points else None
        answer = dict(best or next(iter(self._answers.values())))
        answer["value"] = None
        answer["frontier"] = points
        return self._finish(answer, exceptions)

    def _largest(
        self,
        variable: Variable,
        values: Sequence[int],
        others: Values,
        fits: Callable[[Answer], bool] = lambda answer: bool(answer["fits"]),
    ) -> Found:
        def ask(wanted: Sequence[int]) -> list[Try]:
            points = [{variable.name: value, **others} for value in wanted]
            answers = self._ask(points)
            return [Try(fits(one), one["peak_allocated"], _room(one)) for one in answers]

        return largest(values, ask, self._orders.jobs)

    def _ask(self, points: list[Values]) -> list[Answer]:
        fresh = [point for point in points if _key(point) not in self._answers]
        for point, answer in zip(fresh, self._tries.ask(fresh), strict=True):
            self._answers[_key(point)] = answer
            keys = ("fits", "peak_reserved", "peak_allocated")
            self._rows.append({**point, **{key: answer[key] for key in keys}})
        return [self._answers[_key(point)] for point in points]

    def _training(self, variable: Variable, found: Found) -> int | None:
        """The largest that trains, where only the evaluation after it keeps more from fitting."""
        over = [self._answers[_key({variable.name: value})] for value in found.tries]
        if not any(answer.get("trains") and not answer["fits"] for answer in over):
            return found.value

        def trains(answer: Answer) -> bool:
            return bool(answer["fits"] or answer.get("trains"))

        return self._largest(variable, variable.values, {}, trains).value

    def _answer_of(self, variable: Variable, value: int | None) -> Answer:
        point = {variable.name: variable.values[0] if value is None else value}
        return dict(self._answers[_key(point)])

    def _finish(self, answer: Answer, exceptions: list[tuple[int, int]]) -> Answer:
        answer["vary"] = [variable.name for variable in self._orders.vary]
        answer["tries"] = self._rows
        answer["remembered"] = self._tries.recalled
        answer["exceptions"] = [{"does_not_fit": a, "fits": b} for a, b in exceptions]
        return answer


def _room(answer: Answer) -> int:
    return max(0, int(answer["memory_limit"] or 0) - int(answer["peak_reserved"]))


def _key(values: Values) -> str:
    return json.dumps(values, sort_keys=True)


if __name__ == "__main__":
    sys.exit(_script.for_a_reader(lambda: main(sys.argv[1:])))
