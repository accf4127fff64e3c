"""Tries of values: each an estimate in a fork of this process, unless it is remembered."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from peakline import _C
from peakline._estimate import host
from peakline._estimate.arguments import complain
from peakline._fit import named_imports, variables, warm
from peakline._fit.arguments import Orders
from peakline._fit.remembered import Remembered
from peakline.run import format_size

OUT_OF_TIME = 124
DOES_NOT_FIT = 3
Values = dict[str, int]


class TryFailed(Exception):
    """The script failed, for another reason than memory. Its output has been shown."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Tries:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self.memory = _memory(orders)
        self.made = 0  # in this search
        self.recalled = 0
        self._warm = False
        self._remembered = Remembered(
            [str(self.memory), str(orders.as_they_come), *orders.own, "--", *orders.words],
            (_C.version, *_torch()),
        )

    def ask(self, wanted: Sequence[Values]) -> list[dict[str, Any]]:
        """The answers of the estimates, in the same order."""
        found = {i: self._recall(values) for i, values in enumerate(wanted)}
        missing = [i for i, answer in found.items() if answer is None]
        if missing:
            self._warm_up()
            outcomes = warm.run_all([self._job(wanted[i]) for i in missing], self._orders.jobs)
            for i, outcome in zip(missing, outcomes, strict=True):
                found[i] = self._take(wanted[i], outcome)
            warm.import_installed(name for outcome in outcomes for name in outcome.imported)
        return [found[i] or {} for i in range(len(wanted))]

    def _recall(self, values: Values) -> dict[str, Any] | None:
        kept = None if self._orders.forget else self._remembered.get(values)
        if kept is not None:
            self.recalled += 1
            self._show(values, kept, " (remembered)")
        return kept

    def _warm_up(self) -> None:
        if self._warm:
            return
        self._warm = True
        script = self._orders.estimate_args(_some(self._orders), self.memory).script
        if script:
            warm.import_installed(named_imports.installed(script))

    def _job(self, values: Values) -> warm.Job:
        def job() -> tuple[int, dict[str, Any] | None]:
            from peakline._estimate import neighbours
            from peakline._estimate.answer import finish
            from peakline._estimate_script import estimate

            args = self._orders.estimate_args(values, self.memory)
            words = self._orders.estimate_words(values, self.memory)
            status, answer = estimate(args, neighbours.Neighbours(words))
            if answer is not None:
                answer["files"] = warm.local_files()
                finish(answer)
            return status, answer

        return job

    def _take(self, values: Values, outcome: warm.Outcome) -> dict[str, Any]:
        self.made += 1
        answer = outcome.answer
        failed = answer is None or (answer["partial"] and answer["fits"])
        if failed:
            sys.stderr.write(outcome.output)
            what = f"with {variables.shown(values)} the script "
            if outcome.status == OUT_OF_TIME:
                raise TryFailed(OUT_OF_TIME, what + "did not come to its end in time")
            raise TryFailed(outcome.status or 1, what + "failed, so nothing can be said")
        assert answer is not None
        files = answer.pop("files", [])
        self._remembered.keep(values, answer, files)
        self._show(values, answer, "")
        return answer

    def _show(self, values: Values, answer: dict[str, Any], how: str) -> None:
        limit = format_size(answer["memory_limit"] or 0)
        if answer["fits"]:
            what = f"fits, {format_size(answer['peak_reserved'])} of {limit}"
        elif answer.get("gpu_fits"):
            what = host.too_much(answer)
        elif answer.get("trains"):
            what = f"trains, but its evaluation does not fit {limit}"
        else:
            what = f"does not fit {limit}"
        complain(f"{variables.shown(values)}: {what}{how}")


def _some(orders: Orders) -> Values:
    return {variable.name: variable.values[0] for variable in orders.vary}


def _memory(orders: Orders) -> int | None:
    """What the allocator may reserve: less than there is by the margin."""
    args = orders.estimate_args(_some(orders), None)
    if not orders.margin:
        return None
    memory = args.memory
    if memory is None:
        with contextlib.suppress(ValueError):
            memory = usual_memory(args.gpu)
    return None if memory is None else int(memory * (1 - orders.margin))


def usual_memory(gpu: str) -> int:
    from peakline.virtual_gpu import virtual_gpu

    with virtual_gpu(gpu):
        found = _C.vgpu.properties(0)
        return int(found["total_memory"] - found["context"])


def _torch() -> tuple[str]:
    import torch

    return (str(torch.__version__),)
