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
        for meant in self._meant(model):
            if self._wrapped:
                return
            try:
                recompute.wrap(meant, self.plan)
            except PlanError as error:
                self._complaint = self._complaint or str(error)
            else:
                self._wrapped.append(meant)

    def _meant(self, model: nn.Module) -> list[nn.Module]:
        """The plan's model may be part of another: what is averaged, what a trainer runs."""
        if not self.plan.model:
            return [model]
        meant = [one for one in model.modules() if _class_name(one) == self.plan.model]
        # Copies that are not trained (an average, a teacher) come last.
        return sorted(meant, key=lambda one: not any(p.requires_grad for p in one.parameters()))


def _class_name(module: nn.Module) -> str:
    """FSDP2 gives modules a class of its own, named after theirs."""
    return type(module).__name__.removeprefix("FSDP")
