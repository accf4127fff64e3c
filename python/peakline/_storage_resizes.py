"""UntypedStorage.resize_, which no operator reports, followed for everybody by one patch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from peakline import _C
from peakline._patches import Patches

# Called with the storage before it is resized; gives what is to be called afterwards.
Follower = Callable[[torch.UntypedStorage], Callable[[], None]]

_followers: list[Follower] = []
_patches = Patches()


def follow_resizes(follower: Follower) -> Callable[[], None]:
    """Tells `follower` of every resize until what is returned is called, in any order with others.

    From its first resize on, the host memory of a storage from before is seen like any other.
    """
    _followers.append(follower)
    if len(_followers) == 1:
        _patches.set(torch.UntypedStorage, "resize_", _told(torch.UntypedStorage.resize_))

    def forget() -> None:
        _followers.remove(follower)
        if not _followers:
            _patches.restore()

    return forget


def _told(resize: Any) -> Any:
    @wraps(resize)
    def resize_(st: torch.UntypedStorage, size: int) -> Any:
        _C.watch_host_storage(st)
        afterwards = [follower(st) for follower in _followers]
        result = resize(st, size)
        for after in afterwards:
            after()
        return result

    return resize_
