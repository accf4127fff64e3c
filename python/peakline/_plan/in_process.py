"""Plans of a training function, each tried in this process on a virtual GPU of its own."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from peakline import _C, _script_sizes
from peakline._plan.applied import Applied
from peakline._plan.document import Plan
from peakline._plan.errors import LeverRefused
from peakline._plan.estimates import pcie_gbps
from peakline._plan.probe import Found, Probe
from peakline._plan.tried import Tried
from peakline.virtual_gpu import virtual_gpu

_UNLIMITED = 2**48


class FunctionTries:
    """Asks a function that builds everything it needs and trains a few steps."""

    def __init__(self, train: Callable[..., Any], gpu: str | os.PathLike[str]) -> None:
        self._train = train
        self._gpu = os.fspath(gpu)
        self.dropped: list[tuple[Plan, str]] = []
        self.recalled = 0

    def probe_and_ask(self, base: Plan) -> tuple[Found, Tried]:
        probe = Probe()
        self._run(base, probe)
        found = probe.found()
        found.facts.sizes = _script_sizes.of_function(self._train)
        found.pcie_gbps = pcie_gbps(self._gpu)
        answer = self._run(base, None)
        if not answer.get("step_ms"):
            raise ValueError(
                "the function made no step of an optimizer, so there is no time of one"
            )
        return found, Tried(base, answer)

    def ask(self, plans: Sequence[Plan]) -> list[Tried | None]:
        return [self._try(plan) for plan in plans]

    def _try(self, plan: Plan) -> Tried | None:
        applied = Applied(Plan(plan.model, plan.activations, plan.levers))
        try:
            answer = self._run(plan, applied)
        except LeverRefused as refused:
            self.dropped.append((plan, str(refused)))
            return None
        except Exception as error:  # as it is the function runs
            self.dropped.append((plan, f"{type(error).__name__}: {error}"))
            return None
        if applied.refused:
            self.dropped.append((plan, applied.refused))
            return None
        return Tried(plan, answer)

    def _run(self, plan: Plan, around: Any) -> dict[str, Any]:
        gc.collect()  # what the last one left in cycles
        gpu = virtual_gpu(self._gpu, memory=_UNLIMITED)
        outer = contextlib.nullcontext() if around is None else around.before(gpu)
        with outer, gpu as run:
            with contextlib.redirect_stdout(io.StringIO()):
                self._train(**plan.arguments)
            times = gpu.times.answer(_C.cost.Profile(self._gpu)) if gpu.times else {}
            peak = torch.cuda.max_memory_reserved()
        answer: dict[str, Any] = json.loads(run.to_json())
        return answer | times | {"peak_reserved": peak}
