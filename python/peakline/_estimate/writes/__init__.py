"""What a script writes while it is estimated: nothing that was there before is touched.

Its numbers are made up, so what it saves must not replace what a real run has saved.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

from peakline._estimate.writes import files, libraries
from peakline._estimate.writes.overlay import Overlay
from peakline._imports import acting_on
from peakline._patches import Patches

__all__ = ["Overlay", "kept_apart"]


@contextlib.contextmanager
def kept_apart(everything: bool = False) -> Iterator[Overlay]:
    """Inside, writes go through the Overlay that this gives. `everything`: new files, too, go into
    its scratch folder, which ends with the block."""
    patches = Patches()
    overlay = Overlay(everything)
    # Python looks for the folder of temporary files under a lock, by writing; the overlay would ask
    # for it again to find a place for what is written.
    tempfile.gettempdir()
    try:
        files.install(patches, overlay)
        libraries.install(patches, overlay)
        with acting_on(libraries.when_imported(patches, overlay)):
            yield overlay
    finally:
        patches.restore()
        overlay.close()
