"""Dynamo: what it traces, what it cannot, and what it remembers of a device."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from peakline._imports import Action
from peakline._patches import Patches
from peakline._virtual_cuda._compiled._garbage import DynamosGarbage
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._properties import DeviceProperties

# Modules whose functions remember what they once learned of the device.
_REMEMBERING = (
    "torch.utils._triton",
    "torch._inductor.utils",
    "torch._inductor.codecache",
    "torch._inductor.analysis.device_info",
    "torch._inductor.runtime.hints",
    "torch._inductor.runtime.benchmarking",
    "torch._dynamo.device_interface",
    "torch._dynamo.variables.torch",
    "torch._dynamo.trace_rules",
)
_FAILED = (
    "torch.compile could not trace {name} on the virtual GPU ({reason}): estimated as running "
    "eagerly, and what is allocated from there on counts as guessed"
)


def actions(patches: Patches, notes: Notes, engine: Engine) -> dict[str, Action]:
    if "torch._dynamo" in sys.modules:
        forget()

    garbage = DynamosGarbage()
    return {
        "torch._dynamo": lambda module: patches.on_restore(forget),
        "torch._dynamo.utils": lambda module: _know_properties(patches, module),
        "torch._dynamo.trace_rules": lambda module: _skip_peakline(patches, module),
        "torch._dynamo.device_interface": _ask_each_time,
        "torch._dynamo.guards": lambda module: _leave_guards_untimed(patches, module),
        "torch._dynamo.convert_frame": lambda module: _watch_frames(
            patches, module, notes, engine, garbage
        ),
        **garbage.actions(patches),
    }


def _know_properties(patches: Patches, utils: Any) -> None:
    """What get_device_properties gives is a constant for Dynamo, as torch's own is."""
    utils.common_constant_types.add(DeviceProperties)
    patches.on_restore(lambda: utils.common_constant_types.discard(DeviceProperties))


def forget() -> None:
    """Code that was compiled for one device is not run on another, nor is what was asked of it
    taken for the other's answer."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and hasattr(dynamo, "reset"):
        dynamo.reset()
    utils = sys.modules.get("torch._inductor.utils")
    if utils is not None:
        utils.clear_caches()
    for name in _REMEMBERING:
        if name in sys.modules:
            _clear_caches(sys.modules[name])


def _clear_caches(module: ModuleType) -> None:
    for owner in (module, *(item for item in vars(module).values() if isinstance(item, type))):
        if owner is not module and owner.__module__ != module.__name__:
            continue
        for item in list(vars(owner).values()):
            function = item.__func__ if isinstance(item, staticmethod) else item
            if isinstance(function, functools._lru_cache_wrapper):
                function.cache_clear()


# What `peakline.checkpoint` puts around modules, and where it is; and hooks that may be traced.
_TRACED = ("_plan", "recompute.py", "selective.py", "offload.py", "_traced_by_dynamo.py")


def _skip_peakline(patches: Patches, rules: Any) -> None:
    """Dynamo runs peakline's own Python as it is: on a GPU that code is C++. What a plan puts into
    a model is the model's on a GPU, too, so it is compiled here as there."""
    folder = Path(__file__).parents[2]
    items = [*folder.iterdir(), *(folder / "_plan").iterdir()]
    own = [str(item) for item in items if item.name not in _TRACED]
    rules.SKIP_DIRS.extend(own)
    rules._recompile_re()

    def undo() -> None:
        for item in own:
            rules.SKIP_DIRS.remove(item)
        rules._recompile_re()

    patches.on_restore(undo)


def _watch_frames(
    patches: Patches, module: Any, notes: Notes, engine: Engine, garbage: DynamosGarbage
) -> None:
    """Runs eagerly where Dynamo itself breaks, which it says of its own errors. What it merely does
    not support breaks a graph, here as on a GPU."""
    original = module._compile
    broken: list[str] = []
    garbage.install(patches)

    # The innermost function that every kind of torch.compile comes to. Around the callbacks of
    # Dynamo's nothing may stand: they look at who called them.
    def compile(code: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with garbage.of_a_frame():
                return original(code, *args, **kwargs)
        except torch._dynamo.exc.InternalTorchDynamoError as error:
            reason = str(error).strip().splitlines()[0]
            notes.put("traced", _FAILED.format(name=code.co_name, reason=reason))
            if not broken:
                engine.enter_compiled_region()
                patches.on_restore(engine.leave_compiled_region)
                _let_nothing_be_compiled(patches)
            broken.append(reason)
            return module.ConvertFrameReturn()

    patches.set(module, "_compile", compile)


def _let_nothing_be_compiled(patches: Patches) -> None:
    """A call with `fullgraph=True` in which no frame was compiled is an error of Dynamo's."""
    eval_frame = sys.modules["torch._dynamo.eval_frame"]
    name = "set_fullgraph_compiled_frame_count"
    count: Any = getattr(eval_frame, name, None)
    patches.set_where_present(eval_frame, name, lambda start: count(start) or 1)


def _leave_guards_untimed(patches: Patches, guards: Any) -> None:
    """Dynamo empties the host's caches to time each frame's guards, for its log. It takes longer
    than to check them a thousand times."""
    patches.set_where_present(guards, "profile_guard_manager", lambda *args: 0.0)


def _ask_each_time(module: Any) -> None:
    """It keeps torch.cuda's functions as they were when it was imported; which ones these are must
    not depend on that moment."""
    cuda = module.CudaInterface
    cuda.get_raw_stream = staticmethod(lambda device: torch._C._cuda_getCurrentRawStream(device))
    cuda.exchange_device = staticmethod(lambda device: torch.cuda._exchange_device(device))
    cuda.maybe_exchange_device = staticmethod(
        lambda device: torch.cuda._maybe_exchange_device(device)
    )
