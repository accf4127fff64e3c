"""Where estimates run: this machine, or a cluster that is there already."""

from __future__ import annotations

from peakline._plan.local import Local
from peakline._plan.tries import Runner


def runner_for(on: str, jobs: int) -> Runner:
    if not on:
        return Local(jobs)
    if on == "ray":
        from peakline._plan.on_ray import OnRay

        return OnRay()
    from peakline._plan.on_dask import OnDask

    return OnDask(on.removeprefix("dask:"))
