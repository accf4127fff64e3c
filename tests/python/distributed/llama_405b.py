"""One rank of a job like Llama 3.1 405B: tensor parallel 8, context parallel 2, 16 stages, FSDP 64.

    peakline estimate llama_405b.py --world-size 16384 --ranks all-distinct

Prints the bytes of the parameters and of the optimizer's states that this rank keeps.
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

PP, DP, CP, TP = 16, 64, 2, 8
LAYERS, WIDTH, HEADS, KV_HEADS, FFN, VOCAB = 126, 16384, 128, 8, 53248, 128256
LENGTH, MICROBATCHES = 8192, 16


def layers_of(stage: int) -> int:
    return LAYERS // PP + (stage < LAYERS % PP)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.q = nn.Linear(WIDTH, HEADS * size, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * size, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * size, bias=False)
        self.out = nn.Linear(HEADS * size, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = WIDTH // HEADS
        q, k, v = (
            part.unflatten(2, (-1, size)).transpose(1, 2)
            for part in (self.q(x), self.k(x), self.v(x))
        )
        groups = q.shape[1] // k.shape[1]
        k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.gate = nn.Linear(WIDTH, FFN, bias=False)
        self.up = nn.Linear(WIDTH, FFN, bias=False)
        self.down = nn.Linear(FFN, WIDTH, bias=False)
        self.norm1 = nn.RMSNorm(WIDTH)
        self.norm2 = nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))  # type: ignore[no-any-return]


PLAN = {
    **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
    "attention.out": RowwiseParallel(),
    "gate": ColwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


class Stage(nn.Module):
    def __init__(self, number: int, mesh: DeviceMesh) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH) if number == 0 else None
        self.blocks = nn.ModuleList(Block() for _ in range(layers_of(number)))
        last = number == PP - 1
        self.norm = nn.RMSNorm(WIDTH) if last else None
        self.head = nn.Linear(WIDTH, VOCAB, bias=False) if last else None
        for block in self.blocks:
            parallelize_module(block, mesh["tp"], PLAN)
        if self.embed is not None:
            plan = {"embed": RowwiseParallel(input_layouts=Replicate())}
            parallelize_module(self, mesh["tp"], plan)
        if self.head is not None:
            plan = {"head": ColwiseParallel(output_layouts=Replicate())}
            parallelize_module(self, mesh["tp"], plan)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        if self.head is not None and self.norm is not None:
            x = self.head(self.norm(x))
        return x


def size(tensor: torch.Tensor) -> int:
    local = getattr(tensor, "_local_tensor", tensor)
    return local.numel() * local.element_size()


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    mesh = init_device_mesh("cuda", (PP, DP, CP, TP), mesh_dim_names=("pp", "dp", "cp", "tp"))
    number = mesh.get_local_rank("pp")
    with torch.device("meta"):
        part = Stage(number, mesh)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in part.blocks:
        fully_shard(block, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
    fully_shard(part, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
    part.to_empty(device=device)
    length = LENGTH // CP
    hidden = {"size": (1, length, WIDTH), "device": device, "dtype": torch.bfloat16}
    tokens = torch.zeros((1, length), device=device, dtype=torch.int64)
    given = tokens if number == 0 else torch.zeros(**hidden, requires_grad=True)  # type: ignore[arg-type]
    out = torch.zeros(**hidden, requires_grad=True)  # type: ignore[arg-type]
    if number == PP - 1:
        out = torch.zeros(1, length, VOCAB, device=device, dtype=torch.bfloat16, requires_grad=True)
    group = mesh.get_group("pp")
    stage = PipelineStage(part, number, PP, device, (given,), (out,), group=group)
    del given, out
    schedule = Schedule1F1B(
        stage,
        MICROBATCHES,
        loss_fn=lambda y, t: nn.functional.cross_entropy(y.flatten(0, 1), t.flatten()),
    )
    optimizer = torch.optim.AdamW(part.parameters())
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 2):
        tokens = torch.zeros((MICROBATCHES, LENGTH), device=device, dtype=torch.int64)
        with context_parallel(mesh["cp"], buffers=[tokens], buffer_seq_dims=[1]):
            args = (tokens,) if number == 0 else ()
            schedule.step(*args, **({"target": tokens} if number == PP - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
    states = [v for s in optimizer.state.values() for k, v in s.items() if k != "step"]
    found = {"parameters": sum(map(size, part.parameters())), "states": sum(map(size, states))}
    print(json.dumps({"rank": dist.get_rank(), "stage": number, **found}), file=sys.stderr)


if __name__ == "__main__":
    main()
