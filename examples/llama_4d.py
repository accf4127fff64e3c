"""Trains a Llama-3-shaped model in four dimensions: pipeline, FSDP2, context and tensor parallel.

    peakline estimate examples/llama_4d.py --world-size 16384 --ranks all-distinct

Without arguments it is shaped like Llama 3.1 405B: 16 stages, FSDP over 64, context parallel 2 and
tensor parallel 8. `--size small` is the same on 64 ranks. `--report` prints, before every optimizer
step, the bytes of the parameters, gradients and optimizer states that the rank keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


@dataclass(frozen=True)
class Size:
    mesh: tuple[int, int, int, int]  # pipeline, FSDP, context, tensor
    layers: int
    hidden: int
    inner: int  # of the feed-forward part
    heads: int
    kv_heads: int
    vocabulary: int
    length: int
    microbatches: int

    def layers_of(self, stage: int) -> int:
        each, more = divmod(self.layers, self.mesh[0])
        return each + (stage < more)


SIZES = {
    "405b": Size((16, 64, 2, 8), 126, 16384, 53248, 128, 8, 128256, 8192, 16),
    "small": Size((4, 4, 2, 2), 6, 256, 768, 8, 2, 1002, 128, 4),
}


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.head_size = size.hidden // size.heads
        kv = size.kv_heads * self.head_size
        self.q = nn.Linear(size.hidden, size.hidden, bias=False)
        self.k = nn.Linear(size.hidden, kv, bias=False)
        self.v = nn.Linear(size.hidden, kv, bias=False)
        self.out = nn.Linear(size.hidden, size.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            projection(x).unflatten(2, (-1, self.head_size)).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        groups = q.shape[1] // k.shape[1]
        k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.gate = nn.Linear(size.hidden, size.inner, bias=False)
        self.up = nn.Linear(size.hidden, size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.hidden, bias=False)
        self.norm1 = nn.RMSNorm(size.hidden)
        self.norm2 = nn.RMSNorm(size.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Stage(nn.Module):
    """The blocks of one stage; the first has the embedding, the last the head."""

    def __init__(self, size: Size, number: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(size.vocabulary, size.hidden) if number == 0 else None
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers_of(number)))
        last = number == size.mesh[0] - 1
        self.norm = nn.RMSNorm(size.hidden) if last else None
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False) if last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        if self.head is not None and self.norm is not None:
            x = self.head(self.norm(x))
        return x


def parallelize(part: Stage, mesh: DeviceMesh) -> None:
    """Tensor parallel within every layer, and FSDP2 around it."""
    plan = {
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        **{name: ColwiseParallel() for name in ("gate", "up")},
        **{name: RowwiseParallel() for name in ("attention.out", "down")},
    }
    for block in part.blocks:
        parallelize_module(block, mesh["tp"], plan)
    if part.embed is not None:
        parallelize_module(part.embed, mesh["tp"], RowwiseParallel(input_layouts=Replicate()))
    if part.head is not None:
        parallelize_module(part.head, mesh["tp"], ColwiseParallel(output_layouts=Replicate()))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in (*part.blocks, part):
        fully_shard(module, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)


def pipeline(part: Stage, size: Size, mesh: DeviceMesh, device: torch.device) -> Schedule1F1B:
    """The stage's neighbours are told what goes in and comes out."""
    number, stages = mesh.get_local_rank("pp"), mesh["pp"].size()
    length = size.length // mesh["cp"].size()

    def carried(width: int) -> torch.Tensor:
        shape = (1, length, width)
        return torch.zeros(shape, device=device, dtype=torch.bfloat16, requires_grad=True)

    tokens = torch.zeros((1, length), device=device, dtype=torch.int64)
    given = tokens if number == 0 else carried(size.hidden)
    out = carried(size.vocabulary if number == stages - 1 else size.hidden)
    group = mesh.get_group("pp")
    stage = PipelineStage(part, number, stages, device, (given,), (out,), group=group)
    return Schedule1F1B(stage, size.microbatches, loss_fn=loss)


def loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def report(stage: int, optimizer: torch.optim.Optimizer) -> None:
    parameters = optimizer.param_groups[0]["params"]
    states = [v for state in optimizer.state.values() for k, v in state.items() if k != "step"]
    kept = {
        "parameters": local_bytes(parameters),
        "gradients": local_bytes(parameter.grad for parameter in parameters),
        "states": local_bytes(states),
    }
    line = json.dumps({"rank": dist.get_rank(), "stage": stage, **kept})
    sys.stderr.write(line + "\n")  # at once: other ranks write there, too


def local_bytes(tensors: Iterable[torch.Tensor | None]) -> int:
    return sum(tensor.to_local().nbytes for tensor in tensors if isinstance(tensor, DTensor))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="405b")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    size = SIZES[args.size]

    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    mesh = init_device_mesh("cuda", size.mesh, mesh_dim_names=("pp", "dp", "cp", "tp"))
    number, last = mesh.get_local_rank("pp"), size.mesh[0] - 1
    with torch.device("meta"):
        part = Stage(size, number)
    parallelize(part, mesh)
    part.to_empty(device=device)
    schedule = pipeline(part, size, mesh, device)
    optimizer = torch.optim.AdamW(part.parameters())
    while True:
        tokens = torch.zeros((size.microbatches, size.length), device=device, dtype=torch.int64)
        with context_parallel(mesh["cp"], buffers=[tokens], buffer_seq_dims=[1]):
            target = tokens if number == last else None
            schedule.step(*([tokens] if number == 0 else []), target=target)
        if args.report:
            report(number, optimizer)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
