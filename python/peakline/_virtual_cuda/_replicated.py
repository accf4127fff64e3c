"""DistributedDataParallel over a fake process group: gradients are "reduced" where they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as native
from torch.nn.parallel import DistributedDataParallel

from peakline._patches import Patches
from peakline._virtual_cuda._job import Job
from peakline._virtual_cuda._reducer import Logger, Reducer

# The reducer of a CUDA build asks the real driver for times. Asked before anything is patched.
OWN_REDUCER = torch.version.cuda is not None


def install(patches: Patches, job: Job) -> None:
    model: Any = DistributedDataParallel
    init = model.__init__
    if OWN_REDUCER:
        patches.set(dist, "Reducer", Reducer)
        patches.set(dist, "Logger", Logger)

    def init_and_hook(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        # Gradients that live in the bucket say so themselves.
        label = None if self.gradient_as_bucket_view else job.label_comm
        self._virtual_hook = _Hook(label)
        if isinstance(self.reducer, Reducer):
            self.reducer.hook = self._virtual_hook
            return
        self.logger = _Logger(self.logger)
        # torch's fake group gives a future without the tensors that the reducer wants.
        register(self.reducer, self._virtual_hook, _run_hook)

    def register_comm_hook(self: Any, state: object, hook: Any) -> None:
        self._check_comm_hook(hook)
        self._virtual_hook.replace(lambda bucket: hook(state, bucket))
        self._comm_hooks.append((hook, state))

    def register_builtin_comm_hook(self: Any, kind: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        halves = kind == native.BuiltinCommHookType.FP16_COMPRESS
        hook = default_hooks.fp16_compress_hook if halves else default_hooks.allreduce_hook
        self._virtual_hook.replace(lambda bucket: hook(self.process_group, bucket))

    register = native._register_comm_hook
    patches.set(model, "__init__", init_and_hook)
    patches.set(model, "register_comm_hook", register_comm_hook)
    patches.set(model, "_register_builtin_comm_hook", register_builtin_comm_hook)


class _Hook:
    """What happens to a bucket that is full: the reducer takes one hook, and never another."""

    def __init__(self, label: Callable[[torch.Tensor], None] | None) -> None:
        self._label = label
        self._run: Callable[[Any], Any] = _in_place
        self._replaced = False

    def replace(self, run: Callable[[Any], Any]) -> None:
        """By the program's own."""
        if self._replaced:
            raise RuntimeError("register_comm_hook can only be called once.")
        self._run, self._replaced = run, True

    def __call__(self, bucket: Any) -> Any:
        if self._label is not None:
            self._label(bucket.buffer())
        return self._run(bucket)


class _Logger:
    """DistributedDataParallel's logger, without times: there is no clock for virtual devices."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def set_runtime_stats_and_log(self) -> None:
        pass


# No annotations: DistributedDataParallel compares them, and these would be text.
def _run_hook(hook, bucket):  # type: ignore[no-untyped-def]
    return hook(bucket)


def _in_place(bucket: Any) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
