"""Small training programs of several ranks, run for real with gloo or on virtual GPUs.

    python jobs.py real|virtual WORLD KIND...

Each rank trains two steps and prints the bytes of the tensors that it keeps, by what they are.
The device is the CPU where there is no GPU, virtual or real.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.pipelining
import torch.distributed.tensor.parallel
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

WIDTH, HEADS, BATCH, LENGTH = 64, 4, 8, 16


class Attention(nn.Module):
    """Written out, so that every rank's tensors are the same on every device."""

    def __init__(self, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._split(layer(x)) for layer in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.down(self.up(x).relu())  # type: ignore[no-any-return]


def tensor_parallel(device: torch.device) -> list[nn.Module]:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    block = Block().to(device)
    plan = {
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        "attention.out": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    parallelize_module(block, mesh, plan)
    train([block], lambda: block(torch.randn(BATCH, LENGTH, WIDTH, device=device)).sum().backward())
    return [block]


def pipeline(device: torch.device) -> list[nn.Module]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, world = dist.get_rank(), dist.get_world_size()
    # The first stage has one block more.
    part = nn.Sequential(*(Block() for _ in range(2 if rank == 0 else 1))).to(device)
    shape = (BATCH // 4, LENGTH, WIDTH)
    given = torch.zeros(shape, device=device, requires_grad=rank > 0)
    out = torch.zeros(shape, device=device, requires_grad=True)
    stage = PipelineStage(part, rank, world, device, input_args=(given,), output_args=(out,))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())

    def step() -> None:
        x = torch.randn(BATCH, LENGTH, WIDTH, device=device)
        args = (x,) if rank == 0 else ()
        kwargs: dict[str, Any] = {"target": x} if rank == world - 1 else {}
        schedule.step(*args, **kwargs)

    train([part], step)
    return [part]


class Experts(nn.Module):
    """A layer of experts, two on each rank; token i goes to expert i modulo their number."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 2 * dist.get_world_size()
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        tokens = x.flatten(0, 1)
        world = dist.get_world_size()
        order = torch.arange(len(tokens), device=x.device) % self.count
        counts = torch.bincount(order, minlength=self.count)
        send = counts.view(world, -1).sum(1)
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts)
        receive = received.view(world, -1).sum(1)
        sorted_tokens = tokens[order.argsort(stable=True)]
        mine = all_to_all_single_autograd(
            sorted_tokens, receive.tolist(), send.tolist(), dist.group.WORLD
        )
        done = torch.cat([e(t) for e, t in zip(self.experts, mine.chunk(2), strict=True)])
        back = all_to_all_single_autograd(done, send.tolist(), receive.tolist(), dist.group.WORLD)
        return back.view_as(x)  # type: ignore[no-any-return]


def experts(device: torch.device) -> list[nn.Module]:
    layer = Experts().to(device)
    train([layer], lambda: layer(torch.randn(BATCH, LENGTH, WIDTH, device=device)).sum().backward())
    return [layer]


def uneven(device: torch.device) -> list[nn.Module]:
    """FSDP over tensors whose rows do not divide by the number of ranks."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(WIDTH, 10), nn.Linear(10, 3)).to(device)
    fully_shard(model, mesh=mesh)
    train([model], lambda: model(torch.randn(BATCH, WIDTH, device=device)).sum().backward())
    return [model]


KINDS: dict[str, Callable[[torch.device], list[nn.Module]]] = {
    "tp": tensor_parallel,
    "pp": pipeline,
    "ep": experts,
    "uneven": uneven,
}
KEPT: dict[str, int] = {}


def train(parts: list[nn.Module], step: Callable[[], None]) -> None:
    optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()])
    for _ in range(2):
        step()
        grads = [p.grad for part in parts for p in part.parameters()]
        KEPT["gradients"] = sum(map(size, grads))
        optimizer.step()
        optimizer.zero_grad()
    KEPT["parameters"] = sum(size(p) for part in parts for p in part.parameters())
    states = [v for s in optimizer.state.values() for k, v in s.items() if k != "step"]
    KEPT["optimizer"] = sum(map(size, states))


def size(tensor: Any) -> int:
    local = getattr(tensor, "_local_tensor", tensor)
    return 0 if local is None else local.numel() * local.element_size()


class Saved:
    """Bytes that autograd keeps for backward, at the most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
        self.now += size(tensor)
        self.most = max(self.most, self.now)
        return size(tensor), tensor

    def unpack(self, packed: tuple[int, torch.Tensor]) -> torch.Tensor:
        return packed[1]


def work(kind: str) -> None:
    """One rank, as torchrun would start it."""
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    saved = Saved()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        KINDS[kind](device)
    KEPT["saved"] = saved.now
    line = json.dumps({"kind": kind, "rank": dist.get_rank(), **KEPT}) + "\n"
    os.write(1, line.encode())  # in one piece, beside what other ranks write
    dist.destroy_process_group()


def start(kind: str, rank: int, world: int, port: int, virtual: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        if virtual:
            import peakline

            with peakline.virtual_gpu("h200", devices=world):
                work(kind)
        else:
            work(kind)
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def main(kinds: list[str], world: int, virtual: bool) -> int:
    torch.set_num_threads(1)
    failed = 0
    for kind in kinds:
        port = free_port()
        ranks = [start(kind, rank, world, port, virtual) for rank in range(world)]
        failed += sum(os.waitpid(pid, 0)[1] != 0 for pid in ranks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[3:], int(sys.argv[2]), sys.argv[1] == "virtual"))
