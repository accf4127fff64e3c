"""Who holds what grows with every step: asked while the run goes on, and kept in its recording."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import Any

import torch

from peakline import _C
from peakline._holders import holders_at
from peakline._steps import Steps

# A function that ends takes its variables along, so nobody can be asked after the last step. What
# leaks does so from the first steps on.
_LOOKED_AFTER = (3, 4, 5, 20, 80)
_MOST_ROWS = 4  # each takes some walks over all objects
_ENOUGH = 2  # blocks, to see what differs
_INDEX = re.compile(r"\[\d+\]")


class GrowthHolders:
    """Of one run. Whether something leaks is judged by its recording, when that is complete; here
    only the names are found."""

    def __init__(
        self, session: _C.Session, spool: _C.Spool, sync: Callable[[], bool], steps: Steps
    ) -> None:
        self._session = session
        self._spool = spool
        self._sync = sync
        self._steps = steps
        self._process = os.getpid()
        self.suspects = False  # one more step would show whether something leaks

    def step_ended(self) -> None:
        if os.getpid() != self._process:  # a child, which has not all of the recording
            return
        if self._steps.done not in _LOOKED_AFTER or not self._sync():
            return
        found = _C.growth_so_far(self._spool)
        self.suspects = bool(found["suspects"])
        for device, rows in found["rows"].items():
            self.name(device, rows)

    def name(
        self,
        device: str,
        rows: list[dict[str, Any]],
        again: bool = False,
        error: BaseException | None = None,
    ) -> None:
        """Fills in who holds the first of `rows`, and notes it in the recording.

        `again`: also of those of which it is known who did. Functions that `error` has just ended
        count as running.
        """
        asked = [row for row in rows[:_MOST_ROWS] if again or not row["holder"]]
        if not asked:
            return
        groups = [[(device, address) for address in row["examples"]] for row in asked]
        found: list[list[str]] = []
        with contextlib.suppress(Exception):  # objects of the program may raise whatever they like
            found = holders_at(groups, self._addresses, _ENOUGH, error)
        for row, paths in zip(asked, found, strict=False):
            if paths:
                row["holder"] = _pattern(paths)
                self._session.info(row["key"], row["holder"])

    def _addresses(self, tensor: torch.Tensor) -> list[int]:
        if _C.vgpu.is_past_storage(tensor.untyped_storage()):
            return []
        return self._session.addresses(tensor)


def _pattern(paths: list[str]) -> str:
    """`main(): losses[…]` of two that differ in an index; the first where they differ in more."""
    if len(paths) < _ENOUGH or _INDEX.split(paths[0]) != _INDEX.split(paths[1]):
        return paths[0]
    others = iter(_INDEX.findall(paths[1]))
    return _INDEX.sub(lambda own: own[0] if own[0] == next(others) else "[…]", paths[0])
