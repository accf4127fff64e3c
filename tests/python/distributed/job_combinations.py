"""Two kinds of parallelism at once, on a mesh of two times two ranks (or twice that)."""

from __future__ import annotations

import torch
import torch.distributed as dist
from job_kinds import train_stage, with_tensor_parallel
from job_parts import BATCH, HEADS, LENGTH, WIDTH, Block, Experts, train, train_alone
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.experimental import context_parallel


def tensor_and_fsdp(device: torch.device) -> None:
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("dp", "tp"))
    block = with_tensor_parallel(Block().to(device), mesh["tp"])
    fully_shard(block, mesh=mesh["dp"])
    train_alone(block, device)


def pipeline_and_fsdp(device: torch.device) -> None:
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("pp", "dp"))
    number = mesh.get_local_rank("pp")
    part = nn.Sequential(*(Block() for _ in range(2 if number == 0 else 1))).to(device)
    for module in (*part, part):
        fully_shard(module, mesh=mesh["dp"], reshard_after_forward=False)
    train_stage(part, number, 2, device, mesh.get_group("pp"))


def experts_and_fsdp(device: torch.device) -> None:
    """Experts are sharded over the ranks that have the same ones, everything else over all."""
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("dp", "ep"))
    everybody = init_device_mesh(device.type, (dist.get_world_size(),))
    model = nn.Sequential(Block(), Experts(mesh.get_group("ep"))).to(device)
    for expert in model[1].experts:  # type: ignore[union-attr]
        fully_shard(expert, mesh=mesh["dp"])
    fully_shard(model[0], mesh=everybody)
    train_alone(model, device)


class FusedAttention(nn.Module):
    """What context parallelism can take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return attended.transpose(1, 2).flatten(2)


def hybrid_and_context(device: torch.device) -> None:
    """Two replicas of two shards of two parts of the sequence. On a GPU, virtual or not."""
    names = ("replicate", "shard", "cp")
    mesh = init_device_mesh(device.type, (2, 2, 2), mesh_dim_names=names)
    model = FusedAttention().to(device, torch.bfloat16)
    fully_shard(model, mesh=mesh["replicate", "shard"])

    def step() -> None:
        x = torch.randn(BATCH, LENGTH, WIDTH, device=device, dtype=torch.bfloat16)
        with context_parallel(mesh["cp"], buffers=[x], buffer_seq_dims=[1]):
            model(x).sum().backward()

    train(model, step)
