"""Storages that are made or resized by themselves, not through a tensor's op."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.dlpack

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._refused import refusal

_LARGE = 1 << 30
_MAP_NORESERVE = 0x4000  # Linux; Python 3.13 is the first to name it
_IPC = "memory of a virtual GPU cannot be shared with other processes"


def install(patches: Patches, engine: Engine) -> None:
    storage: Any = torch.UntypedStorage
    patches.set(storage, "__new__", _new(storage.__new__))
    patches.set(storage, "resize_", _resize(storage.resize_, engine))
    patches.set(storage, "_write_file", _write_file(storage._write_file))
    patches.set(storage, "from_file", staticmethod(_from_file(storage.from_file)))
    patches.set(storage, "_set_from_file", _set_from_file(storage._set_from_file))
    from_dlpack = _from_dlpack(torch.utils.dlpack.from_dlpack, engine)
    patches.set(torch, "from_dlpack", from_dlpack)
    patches.set(torch.utils.dlpack, "from_dlpack", from_dlpack)
    patches.set(storage, "_share_cuda_", refusal(_IPC))
    patches.set(storage, "_new_shared_cuda", classmethod(refusal(_IPC)))


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            extra = {} if device is None else {"device": device}
            return original(cls, *args, **extra, **kwargs)
        content = args[0] if args else 0
        if isinstance(content, int):
            made = torch.empty(content, dtype=torch.uint8, device=device)
        else:
            made = torch.tensor(list(content), dtype=torch.uint8, device=device)
        return made.untyped_storage()

    return new


def _resize(original: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
    def resize_(self: torch.UntypedStorage, size: int) -> Any:
        if self.device.type != "cuda":
            return original(self, size)
        engine.resize_storage(self, size)
        return self

    return resize_


def _from_dlpack(original: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
    """A tensor of ours stays one; torch would make a real CUDA tensor of its address."""

    def from_dlpack(ext_tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(ext_tensor, torch.Tensor) and engine.is_virtual(ext_tensor):
            return ext_tensor.detach()
        return original(ext_tensor, *args, **kwargs)

    return from_dlpack


def _write_file(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch's own reads the device's memory by its address."""

    def write_file(self: torch.UntypedStorage, *args: Any) -> Any:
        return original(self.cpu() if self.device.type == "cuda" else self, *args)

    return write_file


def _from_file(original: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a file's pages that promises no memory for them: Linux refuses torch's own when the
    file is larger than the host's memory. Only what is read takes any."""

    def from_file(filename: Any, shared: bool = False, nbytes: int = 0) -> Any:
        if shared or nbytes < _LARGE:
            return original(filename, shared, nbytes)
        with open(filename, "rb") as file:
            flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
            pages = mmap.mmap(file.fileno(), nbytes, flags, mmap.PROT_READ | mmap.PROT_WRITE)
        return torch.frombuffer(pages, dtype=torch.uint8).untyped_storage()

    return from_file


def _set_from_file(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_from_file(self: torch.UntypedStorage, *args: Any) -> Any:
        if self.device.type != "cuda":
            return original(self, *args)
        host = torch.UntypedStorage(self.nbytes())
        original(host, *args)
        return self.copy_(host)

    return set_from_file
