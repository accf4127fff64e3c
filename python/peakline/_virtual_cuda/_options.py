"""What a user asked of the virtual GPU beside its device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _quiet(sentence: str) -> None:
    pass


@dataclass(frozen=True)
class Options:
    eager: bool = False  # compiled regions run uncompiled
    stand_ins: bool = True  # for CUDA extensions that are not installed
    virtual_host: bool = False  # large tensors of the host have no bytes
    may_be_close: bool = True  # what `allclose` says where nobody knows
    progress: Callable[[str], None] = _quiet  # told what takes long
