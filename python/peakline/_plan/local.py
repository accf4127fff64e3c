"""Estimates on this machine: forks of one warm process, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peakline._fit import named_imports, warm
from peakline._plan.estimates import Result, Task, make, result_of

Done = Callable[[int, Result], None]


class Local:
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._warm = False

    def run(self, tasks: Sequence[Task], done: Done, script: str | None) -> None:
        """`done` gets each result as soon as it is there."""
        if not self._warm and script:
            warm.import_installed(named_imports.installed(script))
        self._warm = True
        imported: list[str] = []

        def ended(number: int, outcome: warm.Outcome) -> None:
            imported.extend(outcome.imported)
            done(number, result_of(outcome))

        warm.run_all([_job(task) for task in tasks], self._jobs, ended)
        warm.import_installed(imported)

    def close(self) -> None:
        pass


def _job(task: Task) -> warm.Job:
    return lambda: make(task)
