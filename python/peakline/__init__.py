"""peakline: exact memory tracking and estimation for PyTorch training."""

from peakline import _torch_check as _torch_check
from peakline._C import version as __version__
from peakline.mem_tracker import MemTracker
from peakline.memory_tracker import MemoryTracker
from peakline.mod_tracker import ModTracker
from peakline.run import Run, load
from peakline.simulate import simulate
from peakline.track import track
from peakline.virtual_gpu import virtual_gpu

__all__ = [
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
