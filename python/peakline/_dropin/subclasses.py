"""What the C++ engine asks Python about tensor subclasses."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from peakline._torch_places import place

_FakeTensor = place("torch._subclasses.fake_tensor:FakeTensor")
Answer = tuple[bool, torch.device | None, Any]


class SubclassFacts:
    """Called with a tensor: is it a fake one to track, on which device, and what is inside it."""

    def __init__(self) -> None:
        self.fake_mode: Any = None  # the one that was on when tracking began

    def __call__(self, tensor: torch.Tensor) -> Answer:
        if isinstance(tensor, _FakeTensor):
            # Another mode's tensors are somebody's shape propagation, not memory.
            ours = self.fake_mode is None or tensor.fake_mode is self.fake_mode
            return ours, tensor.fake_device, ()
        if is_traceable_wrapper_subclass(tensor):
            return False, None, _parts(tensor)
        return False, tensor.device, ()


def _parts(tensor: Any) -> list[torch.Tensor]:
    try:
        inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    except Exception:  # asked at the end of an op, where nobody could handle it
        return []  # a subclass that does not say what is inside it has no memory that we know of
    return [part for part in inner if isinstance(part, torch.Tensor)]
