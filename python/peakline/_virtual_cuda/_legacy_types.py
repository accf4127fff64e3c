"""torch.cuda.FloatTensor and its like, `x.new`, `x.new_tensor`, `set_default_tensor_type`.

torch implements these by dispatch keys, and a virtual tensor has another key than a CUDA tensor.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine

_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


class _LegacyType(type):
    """The type of torch.cuda.FloatTensor: it looks like a class, and makes plain tensors."""

    dtype: torch.dtype
    is_sparse: bool

    def __call__(cls, *args: Any, device: Any = "cuda") -> torch.Tensor:
        if cls.is_sparse:
            return _sparse(args, cls.dtype, device)
        return _dense(args, cls.dtype, device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.is_cuda
            and instance.dtype == cls.dtype
            and instance.is_sparse == cls.is_sparse
        )

    def __repr__(cls) -> str:
        return f"<class '{cls.__name__}'>"

    @property
    def is_cuda(cls) -> bool:
        return True

    @property
    def layout(cls) -> torch.layout:
        return torch.sparse_coo if cls.is_sparse else torch.strided


def _make_type(name: str, dtype: torch.dtype, is_sparse: bool) -> _LegacyType:
    # Tensor.type() reads the name of a class, and wants it in full.
    made = _LegacyType(f"torch.cuda.{'sparse.' if is_sparse else ''}{name}Tensor", (), {})
    made.dtype = dtype
    made.is_sparse = is_sparse
    return made


def _dense(args: tuple[Any, ...], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """Sizes, a sequence of numbers, a storage, or another tensor."""
    if len(args) == 1 and not isinstance(args[0], int):
        content = args[0]
        if isinstance(content, torch.Size):
            return torch.empty(content, dtype=dtype, device=device)
        if isinstance(content, torch.Tensor):
            return _alias(content, dtype)
        if isinstance(content, (torch.UntypedStorage, torch.TypedStorage)):
            return torch.empty(0, dtype=dtype, device=device).set_(content)
        return torch.tensor(content, dtype=dtype, device=device)
    return torch.empty(args or (0,), dtype=dtype, device=device)


def _alias(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if tensor.dtype != dtype or not tensor.is_cuda:
        raise TypeError(
            f"expected a tensor of {dtype} on cuda, not of {tensor.dtype} on {tensor.device}"
        )
    return tensor.detach()


def _base_tensor(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.Tensor(…)` makes the default type, which no default device tells it."""
    if cls is not torch.Tensor or kwargs:
        return torch._C.TensorBase.__new__(cls, *args, **kwargs)
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        return args[0].detach()  # of whatever type
    return _dense(args, torch.get_default_dtype(), "cuda")


def _sparse(args: tuple[Any, ...], dtype: torch.dtype, device: Any) -> torch.Tensor:
    if args and isinstance(args[0], torch.Tensor):
        return torch.sparse_coo_tensor(*args, dtype=dtype, device=device)
    sizes = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    return torch.empty(tuple(sizes), dtype=dtype, device=device, layout=torch.sparse_coo)


def install(patches: Patches, engine: Engine) -> None:
    types: dict[str, _LegacyType] = {}
    for name, dtype in _DTYPES.items():
        dense = _make_type(name, dtype, False)
        sparse = _make_type(name, dtype, True)
        patches.set(torch.cuda, f"{name}Tensor", dense)
        patches.set_where_present(torch.cuda.sparse, f"{name}Tensor", sparse)
        types |= {dense.__name__: dense, sparse.__name__: sparse}
    patches.set(torch.Tensor, "new", _new(torch.Tensor.new, engine))
    patches.set(torch.Tensor, "new_tensor", _new_tensor(torch.Tensor.new_tensor, engine))
    default = _DefaultType(torch.set_default_tensor_type, types)
    patches.set(torch, "set_default_tensor_type", default.set)
    patches.on_restore(default.restore)


def _new(original: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
    def new(self: torch.Tensor, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if not engine.is_virtual(self) or kwargs:
            extra = {} if device is None else {"device": device}
            return original(self, *args, **extra, **kwargs)
        where = self.device if device is None else device
        if self.layout == torch.strided:
            return _dense(args, self.dtype, where)
        return _sparse(args, self.dtype, where)

    return new


def _new_tensor(original: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
    def new_tensor(
        self: torch.Tensor,
        data: Any,
        *,
        dtype: torch.dtype | None = None,
        device: Any = None,
        requires_grad: bool = False,
        **kwargs: Any,
    ) -> Any:
        if not engine.is_virtual(self):
            options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
            return original(self, data, **options, **kwargs)
        return torch.tensor(
            data,
            dtype=self.dtype if dtype is None else dtype,
            device=self.device if device is None else device,
            requires_grad=requires_grad,
            **kwargs,
        )

    return new_tensor


class _DefaultType:
    """A default type on cuda is a default device and a default dtype."""

    def __init__(self, original: Callable[[Any], None], types: dict[str, _LegacyType]) -> None:
        self._original = original
        self._types = types
        self._dtype = torch.get_default_dtype()
        self._is_cuda = False

    def set(self, t: Any, /) -> None:
        wanted = self._types.get(t) if isinstance(t, str) else t
        if isinstance(wanted, _LegacyType):
            warnings.warn(
                "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
                "torch.set_default_dtype() and torch.set_default_device() as alternatives.",
                stacklevel=2,
            )
            if not wanted.dtype.is_floating_point:
                raise TypeError("only floating-point types are supported as the default type")
            torch.set_default_dtype(wanted.dtype)
            torch.set_default_device("cuda")
            importlib.import_module("torch._dynamo")  # as it loads, it looks at torch's own __new__
            torch.Tensor.__new__ = _base_tensor  # type: ignore[method-assign, assignment]
            self._is_cuda = True
            return
        self._leave_cuda()
        self._original(t)

    def _leave_cuda(self) -> None:
        if self._is_cuda:
            torch.set_default_device(None)
            del torch.Tensor.__new__
            self._is_cuda = False

    def restore(self) -> None:
        """The program's default device was a virtual one, and is none any more."""
        if self._is_cuda:
            self._leave_cuda()
            torch.set_default_dtype(self._dtype)
