"""The clock of a virtual GPU, read at the ends of steps."""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from peakline import _C, _stream_spans
from peakline._patches import Patches

# Kernels, copies and collectives of the last step that are remembered.
_MOST_SPANS = 20_000
_OFF = "this run has no clock: it was switched off"


@dataclass(frozen=True)
class Timing:
    """How long a stretch of the program takes, by the clock of the virtual GPU, and why."""

    elapsed_ms: float
    host_ms: float  # the host issued work
    gpu_busy_ms: float  # a kernel, a copy or a collective ran
    network_ms: float  # a collective ran
    hidden_network_ms: float  # and kernels beside it
    compute_ms: float  # in kernels that arithmetic bounds
    memory_ms: float  # in kernels that memory bounds
    latency_ms: float  # in kernels too small for either
    guessed_ms: float  # in kernels that no rule knows
    flops: float
    kernels: int
    ops: int
    bound_by: str  # "host", "compute", "memory", "network"; "" when nothing has run


class StepTimes:
    """Readings of the clock, one at the end of each step."""

    def __init__(self) -> None:
        self.on = _C.vgpu.clock_on()
        self._start = _C.vgpu.timing()
        self._last = self._start
        self._steps: list[Timing] = []
        self._total: Timing | None = None
        self._edges: list[float] = [0.0]  # ends of steps, in microseconds
        if self.on:
            _C.vgpu.keep_spans(_MOST_SPANS)
        self.inputs = FirstInputs()

    def step_ended(self) -> None:
        if not self.on:
            return
        _C.vgpu.join_collectives()
        now = _C.vgpu.timing()
        self._steps.append(Timing(**now.since(self._last).to_dict()))
        self._last = now
        self._edges = [self._edges[-1], 1e3 * now.to_dict()["elapsed_ms"]]
        self.inputs.step_ended()

    def close(self) -> None:
        """The clock is about to go: what it says stays."""
        self._total = self.total()

    def streams(self) -> str:
        """The last step's streams as JSON, for a report; empty without a step."""
        if not self._steps:
            return ""
        return _stream_spans.as_json(_C.vgpu.spans(), *self._edges)

    def total(self) -> Timing:
        """Of all that has run so far."""
        if not self.on:
            raise ValueError(_OFF)
        if self._total is not None:
            return self._total
        return Timing(**_C.vgpu.timing().since(self._start).to_dict())

    def steps(self) -> list[Timing]:
        return list(self._steps)

    def typical(self) -> Timing | None:
        """The step in the middle of those after the first, which has more to do."""
        later = sorted(self._steps[1:] or self._steps, key=lambda step: step.elapsed_ms)
        return later[(len(later) - 1) // 2] if later else None

    def answer(self, profile: Any) -> dict[str, Any]:
        """What `estimate` tells; empty without a clock or a step."""
        step = self.typical()
        if step is None:
            return {}
        seconds = step.elapsed_ms / 1e3
        found: dict[str, Any] = {
            "step_ms": round(step.elapsed_ms, 4),
            "gpu_busy_ms": round(step.gpu_busy_ms, 4),
            "host_ms": round(step.host_ms, 4),
            "bound_by": step.bound_by,
            "network_ms": round(step.network_ms, 4),
            "hidden_network_ms": round(step.hidden_network_ms, 4),
            "mfu": round(step.flops / seconds / profile.peak_tflops / 1e12, 4) if seconds else 0.0,
            "timed_by": profile.time_source,
            "guessed_time_ms": round(step.guessed_ms, 4),
        }
        for name, count in self.inputs.per_step().items():
            found[f"{name}_per_s"] = round(count / seconds, 2) if seconds else 0.0
        return found


class FirstInputs:
    """What the outermost module is given in the third step: samples, and tokens where they are
    numbers of a vocabulary. Which module that is, the second step tells.

    Hooks would have Dynamo look at its graphs again, and warn. Of a program that compiles, calls of
    its first compiled module are looked at from outside.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        # A program that lets its model go must not find it here.
        self._root: weakref.ref[nn.Module] | None = None
        self._samples = 0
        self._tokens = 0
        self._seen = 0
        self._frames_before = _dynamo_frames()

    def step_ended(self) -> None:
        self._seen += 1
        self.close()
        if self._seen == 1 and not self._compiles():
            self._handle = register_module_forward_pre_hook(self._found)
        elif self._seen == 2 and self._root is not None:
            root = self._root()
            if root is not None:
                self._handle = root.register_forward_pre_hook(self._called, with_kwargs=True)
        elif self._seen == 2 and self._compiles():
            self._handle = _CompiledCalls(self._called)

    def _compiles(self) -> bool:
        """This program, and not another one before it in the same process."""
        return _dynamo_frames() not in (0, self._frames_before)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def ended(self) -> None:
        """No step follows. Who keeps the answer does not keep the model."""
        self.close()
        self._root = None

    def _found(self, module: nn.Module, args: Any) -> None:
        if self._root is None:
            self._root = weakref.ref(module)

    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            return  # backward computes a checkpointed forward again
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor) and t.dim()]
        if not tensors:
            return
        first = tensors[0]
        self._samples += first.shape[0]
        if first.dim() == 2 and not first.is_floating_point():
            self._tokens += first.numel()

    def per_step(self) -> dict[str, int]:
        found = {"samples": self._samples, "tokens": self._tokens}
        return {name: count for name, count in found.items() if count}


def _dynamo_frames() -> int:
    """How many frames Dynamo has looked at, in the life of this process, and how many graphs it has
    made: of frames with `fullgraph=True` it counts nothing else. Who has imported it need not have
    used it."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0
    frames, graphs = utils.counters["frames"], utils.counters["stats"]
    return int(sum(frames.values()) + graphs["unique_graphs"])


class _CompiledCalls:
    """Tells `called` what the first compiled module that is called is given, until removed."""

    def __init__(self, called: Callable[[nn.Module, Any, Any], None]) -> None:
        module: Any = importlib.import_module("torch._dynamo.eval_frame").OptimizedModule
        self._patches = Patches()
        call, first = module.__call__, list[Any]()

        def told(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not first:
                first.append(self)
            if self is first[0]:
                called(self, args, kwargs)
            return call(self, *args, **kwargs)

        self._patches.set(module, "__call__", told)

    def remove(self) -> None:
        self._patches.restore()
