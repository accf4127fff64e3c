"""One kind of parallelism each."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from job_parts import BATCH, LENGTH, WIDTH, Block, Experts, train, train_alone
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def whole_mesh(device: torch.device) -> DeviceMesh:
    return init_device_mesh(device.type, (dist.get_world_size(),))


def with_tensor_parallel(block: nn.Module, mesh: DeviceMesh) -> nn.Module:
    plan = {
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        "attention.out": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    return parallelize_module(block, mesh, plan)


def tensor_parallel(device: torch.device) -> None:
    train_alone(with_tensor_parallel(Block().to(device), whole_mesh(device)), device)


class NormedBlock(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.up(self.norm2(x)).relu())  # type: ignore[no-any-return]


def sequence_parallel(device: torch.device) -> None:
    """Between the matrices of tensor parallelism each rank has its part of the sequence alone."""
    block = NormedBlock().to(device)
    into, out = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
    plan = {
        **{f"attention.{name}": into for name in "qkv"},
        **{"attention.out": out, "up": into, "down": out},
        **{"norm1": SequenceParallel(), "norm2": SequenceParallel()},
    }
    parallelize_module(block, whole_mesh(device), plan)
    part = (BATCH, LENGTH // dist.get_world_size(), WIDTH)
    train(block, lambda: block(torch.randn(part, device=device)).sum().backward())


def pipeline(device: torch.device) -> None:
    # The first stage has one block more.
    rank, world = dist.get_rank(), dist.get_world_size()
    blocks = (Block() for _ in range(2 if rank == 0 else 1))
    train_stage(nn.Sequential(*blocks).to(device), rank, world, device)


def train_stage(
    part: nn.Module,
    number: int,
    stages: int,
    device: torch.device,
    group: dist.ProcessGroup | None = None,
) -> None:
    shape = (BATCH // 4, LENGTH, WIDTH)
    given = torch.zeros(shape, device=device, requires_grad=number > 0)
    out = torch.zeros(shape, device=device, requires_grad=True)
    stage = PipelineStage(part, number, stages, device, (given,), (out,), group=group)
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())

    def step() -> None:
        x = torch.randn(BATCH, LENGTH, WIDTH, device=device)
        args = (x,) if number == 0 else ()
        kwargs: dict[str, Any] = {"target": x} if number == stages - 1 else {}
        schedule.step(*args, **kwargs)

    train(part, step)


def experts(device: torch.device) -> None:
    train_alone(Experts().to(device), device)


def uneven(device: torch.device) -> None:
    """FSDP over tensors whose rows do not divide by the number of ranks."""
    model = nn.Sequential(nn.Linear(WIDTH, 10), nn.Linear(10, 3)).to(device)
    fully_shard(model, mesh=whole_mesh(device))
    train_alone(model, device)
