"""What hooks at module boundaries saw, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from peakline.mod_tracker import ModTracker


@contextlib.contextmanager
def logged_boundaries(model: nn.Module) -> Iterator[list[tuple[str, str]]]:
    """All four kinds of compile-safe hooks on `model`, as (kind, module's name)."""
    log: list[tuple[str, str]] = []
    with ModTracker.compile_safe_hooks(
        model,
        pre_fw_hook=lambda fqn, t: log.append(("pre_fw", fqn)),
        post_fw_hook=lambda fqn, i, o: log.append(("post_fw", fqn)),
        pre_bw_hook=lambda fqn, g: log.append(("pre_bw", fqn)),
        post_bw_hook=lambda fqn, g: log.append(("post_bw", fqn)),
    ):
        yield log
