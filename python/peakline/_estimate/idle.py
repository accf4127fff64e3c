"""Optimizers that made no step before the script was ended: what they keep was not seen.

A GAN's generator that steps after every fifth of its critic's, for example.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from peakline import _C

_TOLD = (
    "{names} over {count:,} parameters made no step in the {steps}, so what it keeps is not "
    "counted; --steps {more} shows more"
)


class IdleOptimizers:
    """Of one script."""

    def __init__(self) -> None:
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._others = weakref.WeakSet(_alive())  # not the script's
        self._hook = register_optimizer_step_post_hook(lambda own, *rest: self._stepped.add(own))

    def close(self) -> None:
        self._hook.remove()

    def sentences(self, steps: int) -> list[str]:
        """To be asked while the script's objects are alive."""
        if not self._idle():
            return []
        gc.collect()  # one that a script has replaced may wait for it
        known = {id(parameter) for own in self._stepped for parameter in _parameters(own)}
        found = []
        for own in self._idle():
            mine = [one for one in _parameters(own) if one.is_cuda and one.requires_grad]
            if mine and not any(id(one) in known for one in mine):
                known |= {id(one) for one in mine}
                count = sum(one.numel() for one in mine)
                told = {"names": type(own).__name__, "count": count, "more": 10 * steps}
                found.append(_TOLD.format(steps=_C.counted(steps, "step"), **told))
        return found

    def _idle(self) -> list[Optimizer]:
        seen = (self._stepped, self._others)
        return [own for own in _alive() if not any(own in some for some in seen)]


def _alive() -> list[Optimizer]:
    return [own for own in gc.get_objects() if issubclass(type(own), Optimizer)]


def _parameters(optimizer: Optimizer) -> Iterator[Parameter]:
    # One that is being made, or was given up half-made, has no groups yet.
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]
