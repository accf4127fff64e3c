"""Process groups of a virtual run: one rank of a world that is not there."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import torch.distributed as dist

from peakline import _C
from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._job import Job
from peakline._virtual_cuda._notes import Notes

_NOTE = "process groups are fake: this is rank {rank} of {world}, and collectives move nothing"


def install(patches: Patches, notes: Notes, engine: Engine, job: Job) -> None:
    if not dist.is_available():
        return
    from peakline._virtual_cuda import _meshes, _objects, _routing, _stages  # these need more of it

    module: Any = dist.distributed_c10d
    groups = _Groups(module.init_process_group, module.new_group, notes, job)
    replaced = {
        "init_process_group": groups.init_process_group,
        "new_group": groups.new_group,
        "is_nccl_available": lambda: True,
    }
    for name, function in replaced.items():
        patches.set(module, name, function)
        patches.set(dist, name, function)
    helper = module._new_process_group_helper
    patches.set(module, "_new_process_group_helper", _noted(helper, job))
    patches.set(module.Work, "wait", _told_wait(module.Work.wait))
    patches.set(sys, "excepthook", sys.excepthook)  # a process group changes it for good
    patches.on_restore(groups.close)
    _meshes.install(patches)
    _objects.install(patches)
    _routing.install(patches, engine, job)
    _stages.install(patches, job)


def _noted(helper: Any, job: Job) -> Any:
    """Every group is made here, those of meshes too."""

    @functools.wraps(helper)
    def new_process_group(
        group_size: int, group_rank: int, ranks: Any, *args: Any, **kw: Any
    ) -> Any:
        made = helper(group_size, group_rank, ranks, *args, **kw)
        if made[0] is not dist.GroupMember.NON_GROUP_MEMBER:
            job.add_communicator(tuple(ranks) or tuple(range(group_size)))
        return made

    return new_process_group


def _told_wait(wait: Any) -> Any:
    """The clock hears when a collective that was started before has to be done."""

    @functools.wraps(wait)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        _C.vgpu.join_collectives()
        return wait(self, *args, **kwargs)

    return told


class _Groups:
    """Answers requests for any backend with torch's own fake one."""

    def __init__(self, init: Any, new_group: Any, notes: Notes, job: Job) -> None:
        self._init = init
        self._new_group = new_group
        self._notes = notes
        self._job = job
        self._made = False

    def init_process_group(
        self,
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        **kwargs: Any,
    ) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        if rank < 0:
            rank = int(os.environ.get("RANK", "0"))
        if world_size < 0:
            world_size = int(os.environ.get("WORLD_SIZE", "1"))
        if str(backend) != "fake":
            self._notes.add(_NOTE.format(rank=rank, world=world_size))
        self._job.world_size = world_size
        self._job.groups_use_nccl = _is_for_gpus(backend)
        self._init("fake", rank=rank, world_size=world_size, store=FakeStore())
        self._made = True

    def new_group(self, *args: Any, **kwargs: Any) -> Any:
        if not self._made:
            return self._new_group(*args, **kwargs)
        backend = args[2] if len(args) > 2 else kwargs.pop("backend", None)
        kwargs.pop("pg_options", None)
        if len(args) > 2:  # after ranks and timeout: backend and its options
            args = (*args[:2], None, None, *args[4:])
        before = self._job.groups_use_nccl
        if backend is not None:
            self._job.groups_use_nccl = _is_for_gpus(backend)
        try:
            return self._new_group(*args, **kwargs)
        finally:
            self._job.groups_use_nccl = before

    def close(self) -> None:
        """A group that only a virtual run knows must not outlive it."""
        if self._made and dist.is_initialized():
            dist.destroy_process_group()
        self._made = False


def _is_for_gpus(backend: Any) -> bool:
    """`backend` is "nccl", "gloo", "cpu:gloo,cuda:nccl", … or nothing: whatever suits."""
    return str(backend).lower() not in ("gloo", "mpi", "cpu:gloo", "cpu:mpi")
