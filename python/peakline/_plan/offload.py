"""Tensors that wait for backward in the host's pinned memory. Copies have a stream of their own."""

from __future__ import annotations

import weakref
from typing import Any

import torch

_SMALLEST = 2**20  # bytes; below, a copy takes longer than it is worth
_streams: dict[int, Any] = {}


class Hosted:
    """A tensor that is on the host until somebody asks for it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._device = tensor.device
        self._cuda = tensor.device.type == "cuda"
        if not self._cuda:
            self._there = tensor.detach().clone()
            return
        stream = _stream(tensor.device)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            there = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._there = there.copy_(tensor.detach(), non_blocking=True)
            tensor.record_stream(stream)
            self._done = stream.record_event()

    def back(self) -> torch.Tensor:
        if not self._cuda:
            return self._there
        # On the stream that computes: it was allocated there, and waits for nothing else.
        torch.cuda.current_stream(self._device).wait_event(self._done)
        return self._there.to(self._device, non_blocking=True)


def _stream(device: torch.device) -> Any:
    index = device.index or 0
    known = _streams.get(index)
    here = torch.cuda.Stream
    if known is None or not isinstance(known, here):  # a virtual GPU has streams of its own
        known = _streams[index] = torch.cuda.Stream(device)
    return known


def forget_streams() -> None:
    _streams.clear()


def is_worth_it(tensor: torch.Tensor) -> bool:
    return (
        tensor.numel() * tensor.element_size() >= _SMALLEST
        and tensor.layout == torch.strided
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    )


def saved_on_host() -> Any:
    """A context in which what is saved for backward waits on the host; parameters stay."""
    sent: weakref.WeakValueDictionary[tuple[Any, ...], Hosted] = weakref.WeakValueDictionary()

    def pack(tensor: torch.Tensor) -> Any:
        if _is_parameter(tensor) or not is_worth_it(tensor):
            return tensor
        key = (tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride(), tensor.dtype)
        hosted = sent.get(key)
        if hosted is None:
            hosted = sent[key] = Hosted(tensor)
        return hosted

    def unpack(packed: Any) -> torch.Tensor:
        back: torch.Tensor = packed.back() if isinstance(packed, Hosted) else packed
        return back

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def _is_parameter(tensor: torch.Tensor) -> bool:
    base = tensor if tensor._base is None else tensor._base
    return base.is_leaf and base.requires_grad
