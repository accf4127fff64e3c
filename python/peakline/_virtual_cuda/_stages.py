"""Pipeline stages, whose neighbours are not there."""

from __future__ import annotations

import functools
from typing import Any

import torch

from peakline._imports import acting_on
from peakline._patches import Patches
from peakline._virtual_cuda._job import Job


def install(patches: Patches, job: Job) -> None:
    """Importing them takes seconds, so that is left to the programs that have some."""

    def act(stages: Any) -> None:
        _watch(patches, job, stages)

    patches.keep(acting_on({"torch.distributed.pipelining.stage": act}))


def _watch(patches: Patches, job: Job, stages: Any) -> None:
    base: Any = stages._PipelineStageBase
    init = base.__init__

    @functools.wraps(init)
    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        job.add_stages(self.group)

    patches.set(base, "__init__", noted)
    if hasattr(stages.PipelineStage, "_recv_meta"):  # from torch 2.13 on
        receive = stages.PipelineStage._recv_meta
        patches.set(stages.PipelineStage, "_recv_meta", _told_by_itself(receive, stages))
    if hasattr(stages.PipelineStage, "_warmup_forward_vote"):
        patches.set(stages.PipelineStage, "_warmup_forward_vote", _own_vote(stages))
        patches.set(stages.PipelineStage, "_warmup_backward_result", _vote_result)


def _told_by_itself(receive: Any, stages: Any) -> Any:
    """What neighbours tell of shapes follows from the stage: gradients come in the shapes of its
    outputs, and inputs in those that the program gave."""

    @functools.wraps(receive)
    def recv_meta(self: Any, src_stage: int) -> Any:
        if src_stage > self.stage_index and self._stage_meta.outputs is not None:
            grads = stages._derive_grad_metas(self._stage_meta.outputs)
            return stages._StageBackwardMeta(backward_metas=grads)
        if src_stage < self.stage_index and self._user_meta.inputs is not None:
            return stages._StageForwardMeta(forward_metas=self._user_meta.inputs)
        return receive(self, src_stage)

    return recv_meta


def _own_vote(stages: Any) -> Any:
    """Stages vote whether shapes are known or to be learned; the others vote as this one does."""

    def warmup_forward_vote(
        self: Any, has_backward: bool, received_acc: torch.Tensor | None = None
    ) -> torch.Tensor:
        known = not stages.InferenceMode.needs_dynamic(self._user_meta, has_backward)
        vote = torch.tensor([int(known)], dtype=torch.int32)
        return vote if received_acc is None else vote * received_acc

    return warmup_forward_vote


def _vote_result(self: Any, received_result: torch.Tensor | None = None) -> torch.Tensor | None:
    return received_result
