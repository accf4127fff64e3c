"""DistributedDataParallel over a fake process group: gradients are "reduced" where they lie."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from peakline._patches import Patches
from peakline._virtual_cuda._job import Job
from peakline._virtual_cuda._notes import Notes

_CUDA_BUILD = torch.version.cuda is not None  # asked before anything is patched
_REFUSAL = (
    "DistributedDataParallel cannot be estimated with a CUDA build of torch, whose reducer asks "
    "the real driver for the time; use a CPU-only torch, or leave the model as it is"
)
_NOTE = "a communication hook of DistributedDataParallel was left out"


def install(patches: Patches, notes: Notes, job: Job) -> None:
    model: Any = DistributedDataParallel
    init, register = model.__init__, model.register_comm_hook

    def init_and_hook(self: Any, *args: Any, **kwargs: Any) -> None:
        if _CUDA_BUILD:
            raise RuntimeError(_REFUSAL)
        init(self, *args, **kwargs)
        self.logger = _Logger(self.logger)
        # torch's fake group gives a future without the tensors that the reducer wants.
        register(self, None if self.gradient_as_bucket_view else job.label_comm, _in_place)

    def refuse_hook(self: Any, state: object, hook: Any) -> None:
        notes.add(_NOTE)

    patches.set(model, "__init__", init_and_hook)
    patches.set(model, "register_comm_hook", refuse_hook)


class _Logger:
    """DistributedDataParallel's logger, without times: there is no clock for virtual devices."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def set_runtime_stats_and_log(self) -> None:
        pass


# No annotations: DistributedDataParallel compares them, and these would be text.
def _in_place(label_comm, bucket):  # type: ignore[no-untyped-def]
    if label_comm is not None:  # else gradients live in the bucket, and say so themselves
        label_comm(bucket.buffer())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
