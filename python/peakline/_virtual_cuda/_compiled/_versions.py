"""Which Triton goes with which torch."""

from __future__ import annotations

import importlib.util

import torch

# What torch's own builds for CUDA ask for; a build for CPUs names none.
_TRITON_OF_TORCH = {
    (2, 11): "3.6.0",
    (2, 12): "3.7.0",
    (2, 13): "3.7.1",
    (2, 14): "3.8.0",
    (2, 15): "3.9.0",
}
_NO_TRITON = (
    "Triton is not installed (pip install --no-deps triton=={version} goes with this torch, and "
    "needs no GPU)"
)


def triton_for_this_torch() -> str:
    """The newest that is known where torch is newer than all of these."""
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    newest = max(_TRITON_OF_TORCH)
    return _TRITON_OF_TORCH.get((major, minor), _TRITON_OF_TORCH[newest])


def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def why_not_compiled(eager: bool) -> str:
    """Why compiled regions run eagerly; "" when they are compiled."""
    if eager:
        return "--eager was given"
    if not has_triton():
        return _NO_TRITON.format(version=triton_for_this_torch())
    return ""
