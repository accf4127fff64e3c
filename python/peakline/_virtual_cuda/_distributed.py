"""Process groups of a virtual run: one rank of a world that is not there.

torch's own functions make them, down to where a rank would look for the others and where a backend
would be opened. So it does not matter from where a program has them.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._job import Job
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._refused import refusal
from peakline._virtual_cuda._stores import rank_and_world_size

_FAKE = "fake"
_NOTE = "process groups are fake: this is rank {rank} of {world}, and collectives move nothing"
_SYMMETRIC = (
    "symmetric memory (and asynchronous tensor parallelism, which uses it) is memory that other "
    "GPUs write to, and a virtual run has no other; leave it out"
)


def install(patches: Patches, notes: Notes, engine: Engine, job: Job) -> None:
    if not dist.is_available():
        return
    from peakline._virtual_cuda import (  # these need more of torch.distributed
        _checkpoints,
        _meshes,
        _nccl_group,
        _objects,
        _routing,
        _stages,
        _stores,
        _works,
    )

    module: Any = dist.distributed_c10d
    groups = _Groups(module, notes, job)
    patches.set(module, "_new_process_group_helper", groups.new)
    patches.set(dist.ProcessGroup, "name", groups.name_of)
    for owner in (module, dist):
        patches.set_where_present(owner, "split_group", _split_group)
    patches.set(sys, "excepthook", sys.excepthook)  # a process group changes it for good
    patches.on_restore(groups.close)
    _refuse_symmetric_memory(patches)
    _nccl_group.install(patches)
    _stores.install(patches)
    _works.install(patches, lambda: groups.made)
    _checkpoints.install(patches, lambda: groups.made)
    _meshes.install(patches)
    _objects.install(patches, job)
    _routing.install(patches, engine, job)
    _stages.install(patches, job)


class _Groups:
    """Every group is made here, those of meshes too: torch's fake one, whatever was asked for."""

    def __init__(self, module: Any, notes: Notes, job: Job) -> None:
        self._module = module
        self._helper = module._new_process_group_helper
        self._own_name = dist.ProcessGroup.name
        self._notes = notes
        self._job = job
        self.made = False

    def new(
        self,
        group_size: int,
        group_rank: int,
        ranks: Any,
        backend: Any,
        store: Any,
        group_name: str,
        backend_options: Any = None,
        device_id: Any = None,
        **kwargs: Any,
    ) -> Any:
        """As torch's `_new_process_group_helper`."""
        is_default = len(ranks) == 0
        if not is_default and not self.made:  # a world from before the virtual run
            options = {"backend_options": backend_options, "device_id": device_id, **kwargs}
            return self._helper(
                group_size, group_rank, ranks, backend, store, group_name, **options
            )
        from torch.testing._internal.distributed import fake_pg  # noqa: F401 (registers its backend)

        if group_size < 0:  # MPI's own launcher would tell
            group_rank, group_size = rank_and_world_size()
        made = self._helper(group_size, group_rank, ranks, _FAKE, store, group_name, **kwargs)
        if is_default:
            self._begin(group_rank, group_size, backend)
        if made[0] is not dist.GroupMember.NON_GROUP_MEMBER:
            self._answer_as(made[0], backend, backend_options)
            if _is_for_gpus(backend):
                self._job.add_communicator(tuple(ranks) or tuple(range(group_size)))
        return made

    def _begin(self, rank: int, world_size: int, backend: Any) -> None:
        self.made = True
        self._job.world_size = world_size
        if str(backend) != _FAKE:
            self._notes.add(_NOTE.format(rank=rank, world=world_size))

    def _answer_as(self, group: Any, backend: Any, options: Any) -> None:
        """get_backend() and get_backend_config() tell what was asked for."""
        if str(backend) == _FAKE:
            return
        from peakline._virtual_cuda._nccl_group import ProcessGroupNCCL

        world = self._module._world
        world.pg_map[group] = (self._module.Backend(backend), world.pg_map[group][1])
        config = self._module.BackendConfig(self._module.Backend(backend))
        world.pg_backend_config[group] = str(config)
        if "nccl" in str(config):
            ProcessGroupNCCL.adopt(group._get_backend(torch.device("cuda")), options)

    @property
    def name_of(self) -> Any:
        """A group's `name()`: NCCL's where it has that."""

        def name(group: Any) -> str:
            config = self._module._world.pg_backend_config.get(group, "")
            backends = [pair.partition(":")[2] for pair in config.split(",")]
            known = "nccl" if "nccl" in backends else backends[0]
            return known if self.made and known else str(self._own_name(group))

        return name

    def close(self) -> None:
        """A group that only a virtual run knows must not outlive it."""
        if self.made and dist.is_initialized():
            dist.destroy_process_group()
        self.made = False


def _split_group(
    parent_pg: Any = None, split_ranks: Any = None, timeout: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """NCCL splits a communicator; a new group has the same ranks."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
    backend, description = dist.get_backend(parent_pg), kwargs.get("group_desc")
    for places in split_ranks:
        ranks = [parent[place] for place in places]
        if dist.get_rank() in ranks:
            return dist.new_group(ranks, timeout, backend, group_desc=description)
    return None


def _refuse_symmetric_memory(patches: Patches) -> None:
    symmetric: Any = getattr(torch._C._distributed_c10d, "_SymmetricMemory", None)
    for name in ("empty_strided_p2p", "get_mempool_allocator", "rendezvous", "set_group_info"):
        if hasattr(symmetric, name):
            patches.set(symmetric, name, staticmethod(refusal(_SYMMETRIC)))


def _is_for_gpus(backend: Any) -> bool:
    """`backend` is "nccl", "gloo", "cpu:gloo,cuda:nccl", … or nothing: whatever suits."""
    return str(backend).lower() not in ("gloo", "mpi", "cpu:gloo", "cpu:mpi")
