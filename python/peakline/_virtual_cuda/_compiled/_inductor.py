"""Inductor: its settings, and what it cannot compile."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from peakline._imports import Action
from peakline._patches import Patches
from peakline._virtual_cuda._compiled._benchmarks import Benchmarks
from peakline._virtual_cuda._compiled._eager import Regions
from peakline._virtual_cuda._compiled._measured import Measured
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._options import Options

_SETTINGS: dict[str, Any] = {
    # Worker processes have no virtual GPU, and there is nothing to build.
    "compile_threads": 1,
    "autotune_in_subproc": False,
    # What a first run tunes is tuned in every estimate: its buffers count.
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "fx_graph_remote_cache": False,
    "use_static_triton_launcher": False,
    "use_static_cuda_launcher": False,
    "bundle_triton_into_fx_graph_cache": False,
}
_AUTOGRAD_SETTINGS: dict[str, Any] = {
    "enable_remote_autograd_cache": False,
    # Dynamo has traced both of their directions, and the key has the kernels that they call.
    "autograd_cache_allow_custom_autograd_functions": True,
}
_FAILED = (
    "torch.compile could not compile {names} on the virtual GPU ({reason}): estimated as running "
    "eagerly, and counts as guessed"
)


def actions(
    patches: Patches, notes: Notes, engine: Engine, options: Options, benchmarks: Benchmarks
) -> dict[str, Action]:
    cache = {name: os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
    patches.set(torch._C._dynamo.guards, "_empty_strided_cuda", empty_strided_cuda)

    def with_settings(settings: dict[str, Any]) -> Action:
        def configure(config: Any) -> None:
            known = {name: value for name, value in settings.items() if hasattr(config, name)}
            patches.keep(config.patch(known))

        return configure

    def watch(module: Any) -> None:
        folder = Path(cache["TORCHINDUCTOR_CACHE_DIR"]) / "measured"
        measured = Measured(engine, benchmarks, folder)
        compiler = _Compiler(module.compile_fx, measured, notes, engine, options, cache)
        patches.set(module, "compile_fx", functools.wraps(module.compile_fx)(compiler))

    return {
        "torch._inductor.config": with_settings(_SETTINGS),
        "torch._functorch.config": with_settings(_AUTOGRAD_SETTINGS),
        "torch._inductor.compile_fx": watch,
    }


def empty_strided_cuda(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


class _Compiler:
    """Inductor, for one graph after the other. A graph that it cannot compile runs eagerly."""

    def __init__(
        self,
        compile_fx: Callable[..., Any],
        measured: Measured,
        notes: Notes,
        engine: Engine,
        options: Options,
        cache: dict[str, str],
    ) -> None:
        self._compile_fx = compile_fx
        self._measured = measured
        self._notes = notes
        self._engine = engine
        self._options = options
        self._cache = cache
        self._graphs = 0
        self._depth = 0

    def __call__(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self._depth:  # Inductor calls itself
            return self._compile_fx(model, inputs, *args, **kwargs)
        os.environ.update(self._cache)  # a program may have named the folder of real GPUs
        self._graphs += 1
        self._tell(model)
        self._depth += 1
        try:
            with self._measured.around(model, inputs):
                return self._compile_fx(model, inputs, *args, **kwargs)
        except Exception as error:
            if isinstance(error, _not_for_us()):
                raise
            return self._eagerly(model, error)
        finally:
            self._depth -= 1

    def _tell(self, model: Any) -> None:
        ops = sum(node.op.startswith("call") for node in getattr(model, "graph", _NOTHING).nodes)
        self._options.progress(f"compiling graph {self._graphs} ({ops:,} ops)")

    def _eagerly(self, model: Any, error: Exception) -> Callable[..., Any]:
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        note = _FAILED.replace("{reason}", reason.replace("{", "{{").replace("}", "}}"))
        return Regions(self._notes, self._engine, note).mark(model.forward, f"graph {self._graphs}")


def _not_for_us() -> tuple[type[Exception], ...]:
    """Memory that ran out, and what tells Dynamo to trace a frame anew, or not at all."""
    known = importlib.import_module("torch._dynamo.exc")
    names = ("RestartAnalysis", "SkipFrame", "Unsupported", "UserError")
    return (torch.OutOfMemoryError, *(getattr(known, name) for name in names))


class _Nothing:
    nodes: tuple[Any, ...] = ()


_NOTHING = _Nothing()
