"""torch.distributions' checks of their arguments and of values: a healthy run passes them.

A check such as "rows that sum to one" asks what no interval of the elements tells. What is known to
be wrong still raises.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine


def install(patches: Patches, engine: Engine) -> None:
    original = torch._is_all_true

    @functools.wraps(original)
    def is_all_true(valid: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(valid, *args, **kwargs)
        if torch.compiler.is_compiling():
            return answer
        if not engine.is_virtual(answer) or engine.is_known(answer):
            return answer
        return answer.fill_(True)

    patches.set(torch, "_is_all_true", is_all_true)
