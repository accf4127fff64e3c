"""peakline: exact memory tracking and estimation for PyTorch training."""

from typing import TYPE_CHECKING, Any

from peakline import _torch_check as _torch_check
from peakline._C import version as __version__
from peakline.mem_tracker import MemTracker
from peakline.memory_tracker import MemoryTracker
from peakline.mod_tracker import ModTracker
from peakline.run import Run, load
from peakline.simulate import simulate
from peakline.track import track
from peakline.virtual_gpu import virtual_gpu

if TYPE_CHECKING:
    from peakline.fsdp2_mem_tracker import FSDPMemTracker

__all__ = [
    "FSDPMemTracker",
    "MemTracker",
    "MemoryTracker",
    "ModTracker",
    "Run",
    "__version__",
    "load",
    "simulate",
    "track",
    "virtual_gpu",
]


def __getattr__(name: str) -> Any:
    """What needs torch's distributed part, which is slow to import and not in every build."""
    if name == "FSDPMemTracker":
        from peakline.fsdp2_mem_tracker import FSDPMemTracker

        return FSDPMemTracker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
