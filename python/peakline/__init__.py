"""peakline: exact memory tracking and estimation for PyTorch training."""

from peakline import _torch_check as _torch_check
from peakline._C import version as __version__

__all__ = ["__version__"]
