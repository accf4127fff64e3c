"""The settings of torch's CUDA allocator, as PYTORCH_ALLOC_CONF has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from peakline import _C, _allocator_settings
from peakline._plan.facts import Facts
from peakline._plan.levers.lever import Lever
from peakline._plan.stage import Stage

_NAME = "PYTORCH_ALLOC_CONF"


def _check(conf: Any) -> bool:
    if not isinstance(conf, str) or not conf.isprintable() or not conf.isascii():
        return False
    try:
        _C.canonical_settings(conf, _allocator_settings.virtual_release())
    except (ValueError, RuntimeError):
        return False
    return True


def _apply(conf: str, stage: Stage) -> None:
    stage.patches.set(os.environ, _NAME, conf)


def _tries(facts: Facts) -> Sequence[str]:
    if "expandable_segments" in facts.allocator:
        return []
    settings = [facts.allocator, "expandable_segments:True"]  # those that are set stay
    return [",".join(one for one in settings if one)]


LEVER = Lever(
    key="allocator",
    takes="settings as in PYTORCH_ALLOC_CONF, such as 'expandable_segments:True'",
    check=_check,
    changes=lambda conf: conf or "the allocator's defaults",
    paste=lambda conf: [f"export {_NAME}={conf}"],
    apply=_apply,
    tries=_tries,
)
