"""Loads torch and the extension; refuses, in one sentence, what cannot work together."""

from peakline import _built_for

_OLDEST = (2, 11)
_NEWEST = (2, 15)
_INSTALL = "install one, for example: pip install torch==2.13.0"
_BUILD = (
    "build it again beside this torch, in peakline's sources: "
    "pip install --force-reinstall --no-deps ."
)


def _series(version: str) -> tuple[int, int]:
    try:
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        return 0, 0


def check(found: str, built: str) -> None:
    """Raises ImportError unless `found` is supported and is the torch peakline was built for."""
    if not _OLDEST <= _series(found) <= _NEWEST:
        raise ImportError(f"peakline supports torch 2.11 to 2.15, found {found}: {_INSTALL}")
    if found != built:
        raise ImportError(f"peakline was built for torch {built}, found {found}: {_BUILD}")


try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":  # something that torch itself wants
        raise
    raise ImportError(
        f"peakline needs torch 2.11 to 2.15, and this Python has none: {_INSTALL}"
    ) from None

# Before the extension is loaded: beside another torch it may load, and then do anything.
check(torch.__version__, _built_for.torch)

try:
    from peakline import _C as _C
except ImportError as error:
    raise ImportError(
        f"peakline's extension does not load beside torch {torch.__version__} ({error}): {_BUILD}"
    ) from None
