"""The settings of torch's CUDA allocator, as facts of a recording."""

from __future__ import annotations

import os
from typing import Any

import torch

from peakline import _C

_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # torch takes the first that is set


def in_environment() -> str:
    """What an allocator that starts now would be given."""
    return next((os.environ[name] for name in _VARIABLES if name in os.environ), "")


def in_use() -> str:
    """What the allocator of this process was given last, by the environment or by the program."""
    last: Any = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    return str(last()) if last is not None else in_environment()


_RULES = "PEAKLINE_ALLOCATOR_TORCH"  # a release: virtual GPUs follow its rules


def release() -> str:
    """The torch release, as far as the allocator's rules depend on it."""
    return ".".join(torch.__version__.split(".")[:2])


def virtual_release() -> str:
    """The one whose allocator a virtual GPU has."""
    return os.environ.get(_RULES) or release()


def facts(conf: str, torch_release: str) -> dict[str, str]:
    """`conf` as given and, where it can be read, as read by an allocator of such a torch."""
    found = {"allocator_conf": conf, "allocator_torch": torch_release}
    try:
        found["allocator_settings"] = _C.canonical_settings(conf, torch_release)
    except (ValueError, RuntimeError):  # options that only this torch knows
        return found
    return found
