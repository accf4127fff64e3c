"""What Dynamo meets of peakline while it traces the program: hooks of torch's own lists.

It traces them as part of the program. So they stand in a file of their own, which is the only one
of peakline's hooks that is left for it to trace, and do nothing there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def not_while_traced(hook: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return None
        return hook(*args)

    return called
