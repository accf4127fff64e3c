"""Estimates on a Dask cluster: `--on dask:ADDRESS`. Dask runs again what a lost worker had."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from peakline._plan import remote
from peakline._plan.errors import NoCluster
from peakline._plan.estimates import Result, Task

_MISSING = "--on dask needs Dask: pip install distributed"
_RETRIES = 10  # of an estimate whose worker went away


class OnDask:
    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError:
            raise NoCluster(_MISSING) from None
        if not hasattr(distributed, "Client"):  # a folder of the program that is called so
            raise NoCluster(_MISSING)
        try:
            self._dask: Any = distributed
            self._client: Any = self._dask.Client(address, timeout="15s", set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise NoCluster(f"no Dask cluster answers at '{address}': {reason}") from None

    def run(
        self, tasks: Sequence[Task], done: Callable[[int, Result], None], script: str | None
    ) -> None:
        waiting = {self._submit(task, script): number for number, task in enumerate(tasks)}
        left = dict.fromkeys(range(len(tasks)), _RETRIES)
        pool: Any = self._dask.as_completed(list(waiting), loop=self._client.loop)
        for future in pool:
            number = waiting.pop(future)
            found = _result(future)
            if found.lost and left[number] > 0:
                left[number] -= 1
                again = self._submit(tasks[number], script)
                waiting[again] = number
                pool.add(again)
                continue
            done(number, found)

    def _submit(self, task: Task, script: str | None) -> Any:
        text = remote.order(task, script)
        return self._client.submit(remote.run, text, pure=False, retries=_RETRIES)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.run(remote.close_all)
        self._client.close()


def _result(future: Any) -> Result:
    try:
        return remote.result(future.result())
    except Exception as error:  # Dask's own: the worker was killed too often, or has no peakline
        if isinstance(error, ImportError):
            raise NoCluster(f"the cluster's workers have no peakline: {error}") from None
        return Result(lost=True, output=f"peakline: {type(error).__name__}: {error}")
