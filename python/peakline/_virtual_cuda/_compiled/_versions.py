"""Which Triton goes with which torch. Run as a program it prints it, for `make build`."""

from __future__ import annotations

import importlib.util
import re

import torch

# What torch's own builds for CUDA ask for from that release on; a build for CPUs names none.
_TRITON_SINCE = {
    (2, 11): "3.6.0",
    (2, 12): "3.7.0",
    (2, 12, 1): "3.7.1",
    (2, 14): "3.8.0",
    (2, 15): "3.9.0",
}
_NO_TRITON = (
    "Triton is not installed (pip install --no-deps triton=={version} goes with this torch, and "
    "needs no GPU)"
)


def triton_for(torch_version: str) -> str:
    release = tuple(int(part) for part in re.findall(r"\d+", torch_version)[:3])
    known = [since for since in _TRITON_SINCE if since <= release]
    return _TRITON_SINCE[max(known, default=min(_TRITON_SINCE))]


def triton_for_this_torch() -> str:
    return triton_for(torch.__version__)


def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def why_not_compiled(eager: bool) -> str:
    """Why compiled regions run eagerly; "" when they are compiled."""
    if eager:
        return "--eager was given"
    if not has_triton():
        return _NO_TRITON.format(version=triton_for_this_torch())
    return ""


if __name__ == "__main__":
    print(triton_for_this_torch())
