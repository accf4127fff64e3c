"""Ops of other libraries whose results are as long as some values say (`torchvision::nms`).

Their shape functions ask torch for a size that nobody knows yet. A FakeTensor answers with a
symbol; a virtual GPU needs a number, and takes the most there can be: everything is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._library.fake_impl as fake_impl

from peakline._patches import Patches
from peakline._virtual_cuda._questions import Questions


class DynamicSizes:
    """What a shape function gets from torch.library.get_ctx()."""

    def __init__(self, arguments: Sequence[Any], questions: Questions) -> None:
        self._arguments = arguments
        self._questions = questions

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        self._questions.asked("a size of a custom op", "size")
        return _longest(self._arguments) if max is None else max

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> int:
        return self.new_dynamic_size(min=min, max=max)


def install(patches: Patches, questions: Questions) -> None:
    original: Any = fake_impl.set_ctx_getter

    def set_ctx_getter(getter: Callable[[], Any]) -> Any:
        # torch runs a shape function on meta tensors with a getter that only raises.
        if getattr(getter, "__name__", "") != "error_on_ctx":
            return original(getter)
        arguments = sys._getframe(1).f_locals.get("args", ())
        return original(lambda: DynamicSizes(arguments, questions))

    patches.set(fake_impl, "set_ctx_getter", set_ctx_getter)


def _longest(arguments: Sequence[Any]) -> int:
    """Rows of the tensor that has most: boxes, tokens, points."""
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    return max((tensor.shape[0] for tensor in tensors if tensor.dim() > 0), default=1)
