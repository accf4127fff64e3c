"""Imports without a garbage collection in their midst."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """What an import makes stays. To look for garbage in it, and in all that torch has made, takes
    longer than peakline's whole import."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
