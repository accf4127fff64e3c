"""Ops of torch.library.custom_op that have no fake: which lines would register one.

Such an op has a fake of torch's own that only raises, so nobody else notices that one is missing.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._library import utils

from peakline._patches import Patches

_SENTENCE = (
    "peakline's virtual GPU cannot run {name}, because {reason}nothing tells the shapes of its "
    "results; these lines do, in the program or in a file given with --fakes:\n"
    '    @torch.library.register_fake("{name}")\n'
    "    def _({arguments}):\n"
    "        return {result}"
)


def install(patches: Patches) -> None:
    has_trivial = utils.can_generate_trivial_fake_impl

    def can_generate_trivial_fake_impl(op: Any) -> bool:
        if has_trivial(op):
            return True
        asks = sys._getframe(1).f_code.co_name
        if asks == "fake_impl" and torch._C._len_torch_dispatch_stack() == 0:
            raise NotImplementedError(sentence(op._schema))
        return False

    patches.set(utils, "can_generate_trivial_fake_impl", can_generate_trivial_fake_impl)


def sentence(schema: Any, error: str = "") -> str:
    """`error` says why its own code cannot run, where that was tried."""
    tensors = [item.name for item in schema.arguments if str(item.type) == "Tensor"]
    result = f"torch.empty_like({tensors[0] if tensors else '...'})"
    if len(schema.returns) > 1:
        result = "...  # a tuple of tensors with the results' shapes"
    return _SENTENCE.format(
        name=schema.name,
        reason=f"its own code fails there ({error}) and " if error else "",
        arguments=", ".join(item.name for item in schema.arguments),
        result=result,
    )
