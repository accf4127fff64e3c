"""torch.multiprocessing.spawn: other processes would have no virtual GPU, so one rank runs here."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch.multiprocessing

from peakline._patches import Patches
from peakline._virtual_cuda._notes import Notes

_NOTE = "of the {count} processes that the program starts, only one was run, in this one"


class _Finished:
    """What spawn(join=False) gives: its only process has ended already."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


def install(patches: Patches, notes: Notes) -> None:
    def spawn(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        *rest: Any,
        **kwargs: Any,
    ) -> _Finished | None:
        if nprocs > 1:
            notes.add(_NOTE.format(count=nprocs))
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        fn(rank if rank < nprocs else 0, *args)
        return None if join else _Finished()

    patches.set(torch.multiprocessing, "spawn", spawn)
    patches.set(torch.multiprocessing, "start_processes", spawn)
