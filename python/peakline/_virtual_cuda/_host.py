"""Large tensors of the host are virtual, too: what reaches their bytes by no op is answered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._holes import is_left_out

LARGE = 16 << 20  # as vgpu/host_memory.cc


def install(patches: Patches, engine: Engine) -> None:
    tensor: Any = torch.Tensor
    patches.set(tensor, "numpy", _reading(tensor.numpy, engine, "numpy"))
    patches.set(tensor, "tolist", _reading(tensor.tolist, engine, "tolist"))
    patches.set(tensor, "new", _new_tensor(tensor.new, engine))
    storage: Any = torch.UntypedStorage
    patches.set(storage, "__new__", _new_storage(storage.__new__))
    writer: Any = torch._C.PyTorchFileWriter
    patches.set(writer, "write_record", _write_record(writer.write_record, engine))
    buffers: Any = torch.serialization._open_zipfile_writer_buffer
    patches.set(buffers, "__init__", _into_skippable(buffers.__init__))
    mapped: dict[str, int] = {}
    patches.set(storage, "from_file", staticmethod(_noting_place(storage.from_file, mapped)))
    load = _load(torch.load, engine, mapped)
    patches.set(torch, "load", load)
    patches.set(torch.serialization, "load", load)


def _reading(original: Callable[..., Any], engine: Engine, what: str) -> Callable[..., Any]:
    """A method that reads a tensor's values by their address."""

    def read(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not engine.is_virtual_host(self):
            return original(self, *args, **kwargs)
        values = engine.host_values(self, what)
        if self.nbytes >= LARGE:
            return original(self.detach() if kwargs.get("force") else self, *args, **kwargs)
        copy = torch.empty(self.shape, dtype=self.dtype)
        copy.copy_(values)
        return original(copy, *args, **kwargs)

    return read


def _new_tensor(original: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
    """`tensor.new(…)` goes by the dispatch key, which says nothing of the host."""

    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        is_virtual = engine.is_virtual_host(self)
        like = torch.empty(0, dtype=self.dtype) if is_virtual else self
        return original(like, *args, **kwargs)

    return new


def _new_storage(original: Callable[..., Any]) -> Callable[..., Any]:
    """A storage that is made by itself (a deep copy's, a saved tensor's) is as a tensor's."""

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        on_host = device is None or torch.device(device).type == "cpu"
        if on_host and len(args) == 1 and isinstance(args[0], int) and args[0] >= LARGE:
            return torch.empty(args[0], dtype=torch.uint8, device="cpu").untyped_storage()
        extra = {} if device is None else {"device": device}
        return original(cls, *args, **extra, **kwargs)

    return new


def _write_record(original: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
    """torch.save leaves room in the file for what has no bytes, and writes none."""

    def write_record(self: Any, name: str, data: Any, size: int, *args: Any) -> Any:
        has_no_bytes = isinstance(data, torch.UntypedStorage) and engine.is_virtual_storage(data)
        if has_no_bytes and size >= LARGE:
            return self.write_record_metadata(name, size)
        return original(self, name, data, size, *args)

    return write_record


def _into_skippable(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, buffer: Any) -> None:
        original(self, _Skippable(buffer))

    return init


class _Skippable:
    """A stream that torch.save can leave room in, as it does with `seek`.

    torch.distributed.checkpoint writes through a wrapper that cannot seek, around a file that can.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        inner: Any = getattr(self._stream, "raw", None)
        for stream in (self._stream, inner):
            if _can_seek(stream):
                stream.seek(offset, whence)
                return
        for done in range(0, offset, LARGE):  # torch only ever goes forward from where it is
            self._stream.write(bytes(min(LARGE, offset - done)))


def _can_seek(stream: Any) -> bool:
    seekable = getattr(stream, "seekable", None)
    return bool(seekable() if seekable else hasattr(stream, "seek"))


def _noting_place(original: Callable[..., Any], mapped: dict[str, int]) -> Callable[..., Any]:
    """Notes at which address a file was mapped last."""

    def from_file(filename: Any, *args: Any, **kwargs: Any) -> Any:
        storage = original(filename, *args, **kwargs)
        mapped[os.fspath(filename)] = storage.data_ptr()
        return storage

    return from_file


def _load(
    original: Callable[..., Any], engine: Engine, mapped: dict[str, int]
) -> Callable[..., Any]:
    """Large files are mapped instead of read, and counted as if they had been read."""

    def load(f: Any, *args: Any, mmap: bool | None = None, **kwargs: Any) -> Any:
        if mmap is not None or not _is_large_zip(f):
            return original(f, *args, mmap=mmap, **kwargs)
        loaded = original(f, *args, mmap=True, **kwargs)
        begin = mapped.pop(os.fspath(f), None)
        without_bytes: dict[int, torch.UntypedStorage] = {}
        for tensor in _tensors(loaded):
            storage = tensor.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()
            if tensor.device.type != "cpu" or size < LARGE:
                continue
            if begin is not None and is_left_out(f, place - begin, size):
                virtual = without_bytes.setdefault(place, torch.UntypedStorage(size))
                _give(tensor, virtual)
            else:
                engine.count_on_host(storage)
        return loaded

    return load


def _give(tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
    with torch.no_grad():
        tensor.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _is_large_zip(f: Any) -> bool:
    if not isinstance(f, (str, os.PathLike)) or not os.path.isfile(f):
        return False
    if os.path.getsize(f) < LARGE:
        return False
    with open(f, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those in nested dicts, lists and tuples, and of modules."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.state_dict().values()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
