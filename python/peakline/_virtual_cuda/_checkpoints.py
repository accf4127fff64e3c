"""torch.distributed.checkpoint, where the other ranks are not there: each saves and loads its own.

Ranks agree on who writes what, and the first one checks that all shards are there. Alone, a rank
writes and reads what it has, and nobody misses the rest.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from peakline._imports import acting_on
from peakline._patches import Patches


def install(patches: Patches, ours: Callable[[], bool]) -> None:
    """`ours`: whether the groups that are there belong to a virtual run."""

    def alone(utils: Any) -> None:
        init = utils._DistWrapper.__init__

        @functools.wraps(init)
        def init_alone(self: Any, group: Any, use_dist: bool, coordinator_rank: int) -> None:
            init(self, group, use_dist and not ours(), coordinator_rank)

        patches.set(utils._DistWrapper, "__init__", init_alone)

    def without_the_others(planner: Any) -> None:
        validate = planner._validate_global_plan

        @functools.wraps(validate)
        def validate_what_is_here(*args: Any) -> Any:
            found = validate(*args)  # a list of errors, or in an older torch whether there are none
            return found if not ours() else (True if isinstance(found, bool) else [])

        patches.set(planner, "_validate_global_plan", validate_what_is_here)

    package = "torch.distributed.checkpoint"
    watched = contextlib.ExitStack()
    watched.enter_context(
        acting_on({f"{package}.utils": alone, f"{package}.default_planner": without_the_others})
    )
    patches.on_restore(watched.close)
