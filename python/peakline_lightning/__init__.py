"""What Lightning finds of peakline by itself, through its entry point for callbacks.

    PEAKLINE_LIGHTNING=run.peak python train.py

tracks the training and keeps the recording. Without the variable nothing happens. A package of its
own: Lightning loads it in every program, and `import peakline` costs time and needs its torch.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "PEAKLINE_LIGHTNING"


def callbacks() -> list[Any]:
    path = os.environ.get(VARIABLE, "")
    if not path:
        return []
    from peakline.integrations.lightning import PeaklineCallback

    return [PeaklineCallback(path)]
