"""peakline: exact memory tracking and estimation for PyTorch training."""

from peakline import _torch_check as _torch_check
from peakline._C import version as __version__
from peakline.run import Run, load
from peakline.track import track

__all__ = ["Run", "__version__", "load", "track"]
