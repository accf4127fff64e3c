"""The variables of a call that goes on."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

_OWN_REFERENCES = 3  # the frame's, a variable's, and that of the question itself


def variables_of(frame: types.FrameType) -> list[tuple[str, Any]]:
    """Before Python 3.13 a function's frame makes a dict to answer this, and keeps it: what the
    function deletes later would live on. So it is emptied, unless somebody else has it, too."""
    variables = frame.f_locals
    found = list(variables.items())
    is_a_copy = frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(variables) is dict
    if is_a_copy and sys.getrefcount(variables) <= _OWN_REFERENCES and sys.gettrace() is None:
        variables.clear()
    return found
