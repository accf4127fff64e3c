"""A plan, applied to a program that is about to run on a virtual GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from peakline._patches import Patches
from peakline._plan import offload, recompute
from peakline._plan.document import Plan
from peakline._plan.errors import PlanError
from peakline._plan.levers import BY_KEY
from peakline._plan.stage import Stage

_NEVER = "no model of the script has the modules that the plan names ({first})"


class Applied:
    """`refused` says why the program could not have the plan, when it has ended; "": it had."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._stage: Stage | None = None
        self._wrapped: list[nn.Module] = []
        self._complaint = ""

    @property
    def refused(self) -> str:
        if self._stage is not None and self._stage.refused:
            return self._stage.refused
        if self.plan.activations and not self._wrapped:
            return self._complaint or _NEVER.format(first=self.plan.activations[0].modules[0])
        return ""

    @contextmanager
    def before(self, gpu: Any) -> Iterator[None]:
        """Around all of it: some levers act before there is a GPU."""
        offload.forget_streams()
        with Patches() as patches:
            self._stage = stage = Stage(patches)
            for key, value in self.plan.levers.items():
                BY_KEY[key].apply(value, stage)
            if self.plan.activations:
                stage.on_model(self._wrap)
            gpu.on_model(stage.model_met)
            patches.on_restore(offload.forget_streams)
            yield

    def _wrap(self, model: nn.Module) -> None:
        """The first model that has all of the plan's modules is the one that is meant."""
        if self._wrapped or (self.plan.model and not self._is_meant(model)):
            return
        try:
            recompute.wrap(model, self.plan)
        except PlanError as error:
            self._complaint = self._complaint or str(error)
        else:
            self._wrapped.append(model)

    def _is_meant(self, model: nn.Module) -> bool:
        inner = getattr(model, "module", model)  # of DDP
        return self.plan.model in (_class_name(model), _class_name(inner))


def _class_name(module: nn.Module) -> str:
    """FSDP2 gives modules a class of its own, named after theirs."""
    return type(module).__name__.removeprefix("FSDP")
