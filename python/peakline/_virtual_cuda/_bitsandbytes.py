"""bitsandbytes: its own Python allocates what its kernels need; only the kernels are left out.

Every tensor that they read and write is made in Python before the call into its library. So with a
library whose functions for GPUs do nothing, sizes are those of a real run.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
from pathlib import Path
from typing import Any

from peakline._imports import acting_on
from peakline._patches import Patches

_MODULE = "bitsandbytes.cextension"
_PAGED = (
    "a paged optimizer of bitsandbytes keeps its state in memory that the driver moves between "
    "host and GPU, which a virtual GPU does not have; take the one that is not paged"
)
_REFUSED = {"cget_managed_ptr": _PAGED}


class _Library:
    """In place of the native library, for good: modules keep it under names of their own."""

    compiled_with_cuda = True

    def __init__(self, real: Any, host: Path) -> None:
        self.virtual = True
        self._real = real
        self._host = host  # functions for CPU tensors, which are real
        self._functions: dict[str, _Function] = {}

    def __getattr__(self, name: str) -> Any:
        return self._functions.setdefault(name, _Function(name, self))

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def function(self, name: str) -> Any:
        if "_cpu" in name and self.virtual:
            return getattr(ctypes.cdll.LoadLibrary(str(self._host)), name)
        return getattr(self._real, name)


class _Function:
    def __init__(self, name: str, library: _Library) -> None:
        self.__name__ = name
        self._library = library
        self.argtypes: Any = None
        self.restype: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._library.virtual and self.__name__ in _REFUSED:
            raise RuntimeError(_REFUSED[self.__name__])
        if self._library.virtual and "_cpu" not in self.__name__:
            return 0
        function = self._library.function(self.__name__)
        if self.argtypes is not None:
            function.argtypes, function.restype = self.argtypes, self.restype
        return function(*args)


def install(patches: Patches) -> None:
    # It complains at length where its library for GPUs cannot be loaded, which is not needed.
    patches.set(logging.getLogger(_MODULE), "disabled", True)
    libraries: list[_Library] = []

    def replace(module: Any) -> None:
        if not isinstance(module.lib, _Library):
            host = Path(module.__file__).with_name("libbitsandbytes_cpu.so")
            module.lib = _Library(module.lib, host)
        module.lib.virtual = True
        libraries.append(module.lib)

    def register_for_virtual_gpus(module: Any) -> None:
        """Its kernels for CUDA are Python; tensors of a virtual GPU have a key of their own."""
        register = module.register_kernel

        def register_kernel(op: str, device: Any, function: Any = None, **kwargs: Any) -> Any:
            def apply(kernel: Any) -> Any:
                if device == "cuda":
                    register(op, "privateuseone", **kwargs)(kernel)
                return register(op, device, **kwargs)(kernel)

            return apply if function is None else apply(function)

        module.register_kernel = register_kernel

    def with_kernels_for_gpus(package: Any) -> None:
        """Those that it registers only where there is a GPU when it is imported."""
        if f"{package.__name__}.backends.cuda.ops" not in sys.modules:
            from importlib import import_module

            import_module(f"{package.__name__}.backends.cuda.ops")

    def back() -> None:
        for library in libraries:
            library.virtual = False

    watched = contextlib.ExitStack()
    actions = {_MODULE: replace, "bitsandbytes._ops": register_for_virtual_gpus}
    watched.enter_context(acting_on(actions | {"bitsandbytes": with_kernels_for_gpus}))
    patches.on_restore(watched.close)
    patches.on_restore(back)
