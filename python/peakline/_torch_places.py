"""The places inside torch that peakline uses: whether they are there, and what is lost without one.

They are looked for when peakline is imported. Nothing is imported or changed for that; a module
that torch has not loaded yet is taken to be right, and asked when it is used.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch

# What is watched while a run is tracked, in the words of the warning, and what that needs: a module
# and a name in it, and how many arguments it is called with where that matters.
WATCHED: dict[str, tuple[str, ...]] = {
    "which module a module belongs to": (
        "torch.nn.modules.module:register_module_module_registration_hook/1",
        "torch.nn.modules.module:register_module_parameter_registration_hook/1",
        "torch.nn.modules.module:register_module_buffer_registration_hook/1",
        "torch.nn:Module._apply",
    ),
    "backward": ("torch.autograd.variable:Variable._execution_engine.run_backward",),
    "optimizers": (
        "torch.optim.optimizer:register_optimizer_step_pre_hook/1",
        "torch.optim.optimizer:register_optimizer_step_post_hook/1",
    ),
    "module classes made while tracking": ("torch.nn:Module.__init_subclass__",),
    "modules after torch.fx traced": ("torch.fx._symbolic_trace:_Patcher.revert_all_patches",),
    "resized storages": ("torch:UntypedStorage.resize_",),
    "compiled code": (
        "torch._inductor.compile_fx:compile_fx",
        "torch._inductor.codecache:PyCodeCache.load_by_key_path",
    ),
    "ranges of the profiler": ("torch.cuda.nvtx:range_push", "torch.cuda.nvtx:range_pop"),
    "fake tensors": (
        "torch._subclasses.fake_tensor:FakeTensor",
        "torch._subclasses.fake_tensor:FakeTensorMode.__torch_dispatch__",
        "torch._subclasses.fake_tensor:FakeTensorMode.from_tensor",
        "torch._guards:_TLS",
    ),
    "the start of CUDA": ("torch.cuda:_lazy_call/1",),
}


class Absent:
    """Stands where torch has no such name. Nothing is one."""


def place(name: str) -> Any:
    """What torch has under such a name, `Absent` where it has nothing."""
    try:
        return _find(name)
    except AttributeError:
        return Absent


def problems(places: Iterable[str]) -> list[str]:
    """What is wrong with them, each in a few words."""
    return [problem for name in places if (problem := _problem(name))]


@functools.cache
def why_not_watched(part: str) -> str:
    """What of torch is not as expected where `part` is watched; "" where all is."""
    return "; ".join(problems(WATCHED.get(part, ())))


def _problem(name: str) -> str:
    module, _, rest = name.partition(":")
    if module not in sys.modules:
        return ""
    attribute, _, arguments = rest.partition("/")
    try:
        found = _find(name)
    except AttributeError:
        return f"{module} has no {attribute}"
    if arguments and not _takes(found, int(arguments)):
        return f"{module}.{attribute} takes other arguments"
    return ""


def _find(name: str) -> Any:
    module, _, rest = name.partition(":")
    found = sys.modules.get(module)
    if found is None:
        raise AttributeError(f"{module} is not loaded")
    return functools.reduce(getattr, rest.partition("/")[0].split("."), found)


def _takes(function: Any, arguments: int) -> bool:
    """Whether it can be called with so many; what is not written in Python is believed."""
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    required = code.co_argcount - len(function.__defaults__ or ())
    takes_any = bool(code.co_flags & 0x04)  # *args
    return required <= arguments and (takes_any or arguments <= code.co_argcount)


def import_faces(faces: dict[str, str]) -> dict[str, Any]:
    """The names of peakline's modules; what cannot be imported beside this torch says why when it
    is used, and the others work."""
    return {name: _face(name, module) for name, module in faces.items()}


def _face(name: str, module: str) -> Any:
    try:
        return getattr(importlib.import_module(f"peakline.{module}"), name)
    except (ImportError, AttributeError) as error:
        if not _is_about_torch(error):
            raise
        return _refusing(name, str(error).partition("(")[0].strip())


def _is_about_torch(error: ImportError | AttributeError) -> bool:
    owner = error.name if isinstance(error, ImportError) else getattr(error.obj, "__name__", "")
    return str(owner).partition(".")[0] == "torch"


def _refusing(name: str, why: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"peakline.{name} does not work with torch {torch.__version__}, which is not as "
            f"expected: {why}"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


for _part in WATCHED:
    why_not_watched(_part)
