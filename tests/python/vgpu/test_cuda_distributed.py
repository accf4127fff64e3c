"""Process groups, meshes and sharded models on a virtual GPU."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import peakline


def layers(count: int = 4, width: int = 256) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def test_a_request_for_nccl_gives_one_rank_of_a_fake_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        dist.init_process_group("nccl")
        assert dist.get_rank() == 3
        assert dist.get_world_size() == 8
        x = torch.ones(4, device="cuda")
        dist.all_reduce(x)
        dist.barrier()
        group = dist.new_group([0, 3], backend="gloo")
        assert dist.get_world_size(group) == 2
        dist.all_reduce(torch.ones(1), group=group)
    assert not dist.is_initialized()
    assert any("rank 3 of 8" in note for note in gpu.notes())


def test_a_fully_sharded_model_trains_and_holds_its_shard() -> None:
    with peakline.virtual_gpu("h200"):
        dist.init_process_group("fake", rank=0, world_size=4)
        mesh = init_device_mesh("cuda", (4,))
        with torch.device("cuda"):
            model = layers()
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        shard = torch.cuda.memory_allocated()
        whole = sum(parameter.numel() for parameter in model.parameters()) * 4
        assert whole // 4 <= shard < whole // 2
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.zeros(8, 256, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert torch.cuda.max_memory_allocated() > shard


def test_a_mesh_of_more_ranks_than_there_are_names_the_flag() -> None:
    with peakline.virtual_gpu("h200"):
        dist.init_process_group("nccl", rank=0, world_size=1)
        with pytest.raises(RuntimeError, match="found 4 ranks! --world-size N estimates one rank"):
            init_device_mesh("cuda", (4,))


def test_a_replicated_model_trains() -> None:
    with peakline.virtual_gpu("h200"):
        dist.init_process_group("nccl", rank=0, world_size=2)
        model = DistributedDataParallel(layers().cuda(), device_ids=[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.zeros(8, 256, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert torch.cuda.max_memory_allocated() > 0


def worker(rank: int, world: int, found: list[tuple[int, int]]) -> None:
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = DistributedDataParallel(layers().cuda(rank), device_ids=[rank])
    model(torch.zeros(8, 256, device="cuda")).sum().backward()
    found.append((dist.get_rank(), dist.get_world_size()))


def test_of_spawned_processes_the_first_runs_here() -> None:
    found: list[tuple[int, int]] = []
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        torch.multiprocessing.spawn(worker, args=(4, found), nprocs=4)
    assert found == [(0, 4)]
    assert any("4 processes" in note for note in gpu.notes())
