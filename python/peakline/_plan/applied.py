"""A plan, applied to a program that is about to run on a virtual GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from peakline._patches import Patches
from peakline._plan import names, offload, recompute
from peakline._plan.document import Plan
from peakline._plan.errors import PlanError
from peakline._plan.levers import BY_KEY, fsdp_calls
from peakline._plan.stage import Stage

_NEVER = "no model of the script has the modules that the plan names ({first})"
_NO_SUCH_MODEL = "no model of the script is a {model}, which the plan names{hint}"
_NOT_SHARDED = "the script does not call fully_shard, which {keys} would change"


class Applied:
    """`refused` says why the program could not have the plan, when it has ended; "": it had."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._stage: Stage | None = None
        self._wrapped: list[nn.Module] = []
        self._complaint = ""
        self._sharded = False
        self._classes: list[str] = []  # of models that were met

    @property
    def refused(self) -> str:
        if self._stage is not None and self._stage.refused:
            return self._stage.refused
        if self.plan.activations and not self._wrapped:
            return self._complaint or self._never()
        if self._of_fsdp() and not self._sharded:
            return _NOT_SHARDED.format(keys=" and ".join(self._of_fsdp()))
        return ""

    def _of_fsdp(self) -> list[str]:
        return [key for key in self.plan.levers if key.startswith("fsdp.")]

    def _never(self) -> str:
        if not self.plan.model or not self._classes:
            return _NEVER.format(first=self.plan.activations[0].modules[0])
        meant = names.closest(self.plan.model, self._classes)
        hint = f"; did you mean {meant}?" if meant else ""
        return _NO_SUCH_MODEL.format(model=self.plan.model, hint=hint)

    def _note_sharding(self, module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        self._sharded = True
        return kwargs

    @contextmanager
    def before(self, gpu: Any) -> Iterator[None]:
        """Around all of it: some levers act before there is a GPU."""
        offload.forget_streams()
        with Patches() as patches:
            self._stage = stage = Stage(patches)
            for key, value in self.plan.levers.items():
                BY_KEY[key].apply(value, stage)
            if self._of_fsdp():
                fsdp_calls.change(patches, self._note_sharding)
            if self.plan.activations:
                stage.on_model(self._wrap)
            gpu.on_model(stage.model_met)
            patches.on_restore(offload.forget_streams)
            yield

    def _wrap(self, model: nn.Module) -> None:
        """The first model that has all of the plan's modules is the one that is meant."""
        self._classes += [_class_name(one) for one in model.modules()]
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
