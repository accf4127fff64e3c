"""Loads torch; refuses, in one sentence, a torch that this build of peakline cannot work with."""

import torch

_OLDEST = (2, 11)
_NEWEST = (2, 15)


def _series(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def check(found: str, built: str | None = None) -> None:
    """Raises ImportError unless `found` is supported and is the torch peakline was built for."""
    if not _OLDEST <= _series(found) <= _NEWEST:
        raise ImportError(
            f"peakline supports torch 2.11 to 2.15, and found torch {found}; "
            "install a supported one, for example: pip install torch==2.13.0"
        )
    if built is not None and found != built:
        raise ImportError(
            f"peakline was built for torch {built}, and found torch {found}; "
            "build it again beside this torch: pip install --force-reinstall --no-deps peakline"
        )


check(torch.__version__)

from peakline import _C  # noqa: E402  (needs torch's libraries loaded, and a torch that fits)

check(torch.__version__, _C.torch_version)
