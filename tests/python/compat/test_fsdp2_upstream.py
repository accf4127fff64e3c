"""What PyTorch's own tests of FSDPMemTracker assert, at their sizes, on four virtual GPUs.

They allow the tracker's peak to be 10% off the allocator's active bytes; here it is 0.1%.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointWrapper,
    apply_activation_checkpointing,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

import peakline
from peakline.fsdp2_mem_tracker import FSDPMemTracker

WORLD, CLOSE = 4, 0.001


class MLP(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu()).relu()  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, None, self.dropout)
        return nn.functional.dropout(self.out(attended.transpose(1, 2).flatten(2)), self.dropout)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.mlp = Attention(dim, heads, dropout), MLP(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, length: int, dim: int = 16) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, 4, 0.1) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


@pytest.fixture(params=[0, 3])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:  # type: ignore[override]
    with peakline.virtual_gpu("h200", devices=WORLD):
        dist.init_process_group("fake", rank=request.param, world_size=WORLD)
        torch.cuda.set_device(request.param)
        yield torch.device("cuda", request.param)


def active_before(device: torch.device) -> int:
    """After libraries have taken their own memory."""
    nn.Linear(768, 768, device=device)(torch.randn(1, 768, device=device)).sum().backward()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_accumulated_memory_stats(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_stats(device)["active_bytes.all.current"]


def check_two_iterations(
    fmt: FSDPMemTracker,
    run: Callable[[], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    before: int,
) -> None:
    with fmt:
        for iteration in range(2):
            run().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if iteration == 0:
                fmt.reset_mod_stats()
    tracked = fmt.get_tracker_snapshot("peak")[device]["Total"]
    active = torch.cuda.memory_stats(device)["active_bytes.all.peak"] - before
    assert tracked == pytest.approx(active, rel=CLOSE)


@pytest.mark.parametrize("reshard_after_forward", [True, False])
@pytest.mark.parametrize("offload", [CPUOffloadPolicy(pin_memory=False), OffloadPolicy()])
def test_several_groups_in_mixed_precision(
    device: torch.device, reshard_after_forward: bool, offload: OffloadPolicy
) -> None:
    before = active_before(device)
    with torch.device(device):
        model = nn.Sequential(*(MLP(2048) for _ in range(4)))
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cuda", (WORLD,))
    for module in (*model, model):
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=reshard_after_forward,
            offload_policy=offload,
            mp_policy=policy,
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn((8192, 2048), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    check_two_iterations(fmt, lambda: model(x), optimizer, device, before)


def test_forward_and_backward_through_what_is_not_the_root(device: torch.device) -> None:
    before = active_before(device)
    with torch.device(device):
        model = nn.Sequential(*(MLP(2048) for _ in range(3)))
    for module in (*model, model):
        fully_shard(module)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    x = torch.randn((8, 2048), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    check_two_iterations(fmt, lambda: model[0](x), optimizer, device, before)


@pytest.mark.parametrize("reshard_after_forward", [True, False])
@pytest.mark.parametrize("how", ["composable", "wrapper"])
def test_activation_checkpointing_of_a_transformer(
    device: torch.device, reshard_after_forward: bool, how: str
) -> None:
    before = active_before(device)
    with torch.device(device):
        model = Transformer(vocabulary=8192, length=512)
    if how == "wrapper":
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))
    else:
        for block in model.blocks:
            checkpoint(block)
    wrapped = CheckpointWrapper if how == "wrapper" else Block
    for module in [m for m in model.modules() if isinstance(m, wrapped)] + [model]:
        fully_shard(module, reshard_after_forward=reshard_after_forward)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)
    x = torch.randint(0, 8192, (16, 512), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    check_two_iterations(fmt, lambda: model(x), optimizer, device, before)
