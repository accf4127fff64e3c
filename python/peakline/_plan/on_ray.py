"""Estimates on a Ray cluster: `--on ray`. Ray runs again what a lost worker had."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from peakline._plan import remote
from peakline._plan.errors import NoCluster
from peakline._plan.estimates import Result, Task

_MISSING = "--on ray needs Ray: pip install ray"
_RETRIES = 10  # of an estimate whose worker went away


class OnRay:
    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise NoCluster(_MISSING) from None
        self._ray: Any = ray
        try:
            if not ray.is_initialized():
                ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise NoCluster(f"no Ray cluster is there: {str(error).splitlines()[0]}") from None
        self._run = ray.remote(max_retries=_RETRIES)(remote.run)

    def run(
        self, tasks: Sequence[Task], done: Callable[[int, Result], None], script: str | None
    ) -> None:
        waiting = {
            self._run.remote(remote.order(task, script)): number
            for number, task in enumerate(tasks)
        }
        left = dict.fromkeys(range(len(tasks)), _RETRIES)
        while waiting:
            (reference,), _ = self._ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(reference)
            found = self._result(reference)
            if found.lost and left[number] > 0:
                left[number] -= 1
                waiting[self._run.remote(remote.order(tasks[number], script))] = number
                continue
            done(number, found)

    def _result(self, reference: Any) -> Result:
        try:
            return remote.result(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            return Result(lost=True, output=f"peakline: {str(error).splitlines()[0]}")

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._ray.shutdown()
