"""Steps of FSDP2 and of tensor parallelism against their critical path, worked out by hand.

The host costs nothing here, so that streams alone decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import peakline
from peakline import _C

WIDTH, LAYERS, RANKS = 4096, 6, 8
BYTES = WIDTH * WIDTH * 2
HOST = ("host_op_us", "host_backward_us", "host_python_us", "host_launch_us", "host_sync_us")


@pytest.fixture
def gpu(tmp_path: Path) -> str:
    known = _C.cost.Profile("h200").to_toml().splitlines()
    kept = [line for line in known if line.split(" =")[0] not in HOST]
    at = kept.index("[estimated]") + 1
    kept[at:at] = [f"{key} = 0" for key in HOST]
    path = tmp_path / "no-host.toml"
    path.write_text("\n".join(kept) + "\n")
    return str(path)


@pytest.fixture
def job(gpu: str) -> Iterator[str]:
    with peakline.virtual_gpu(gpu):
        dist.init_process_group("nccl", rank=0, world_size=RANKS)
        yield gpu
        dist.destroy_process_group()


def collective(op: str, size: float, gpu: str) -> float:
    return 1e3 * _C.cost.collective_ms(op, size, RANKS, 8, _C.cost.Profile(gpu))


def product(rows: int, columns: int, gpu: str, inner: int = WIDTH) -> float:
    """Microseconds of rows x inner times inner x columns."""
    with torch.device("meta"):
        a, b = torch.ones(rows, inner, dtype=torch.bfloat16), torch.ones(inner, columns)
    b = b.to(torch.bfloat16)
    known = _C.cost.Profile(gpu)
    ms, _, _ = _C.cost.op_time("aten::mm", "", [a, b], [a @ b], False, True, known)
    return 1e3 * ms


def step_us(step: Callable[[], None]) -> tuple[float, float]:
    """Of the third step until everything is done, and of its kernels one after another."""
    for _ in range(2):
        step()
        torch.cuda.synchronize()
    before = _C.vgpu.timing()
    step()
    torch.cuda.synchronize()
    found = _C.vgpu.timing().since(before).to_dict()
    kernels = sum(found[key] for key in ("compute_ms", "memory_ms", "latency_ms"))
    return 1e3 * found["elapsed_ms"], 1e3 * kernels


def sharded(rows: int) -> Callable[[], None]:
    mesh = init_device_mesh("cuda", (RANKS,))
    with torch.device("cuda"):
        layers = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(LAYERS)]
        model = nn.Sequential(*layers)
        x = torch.ones(rows, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

    def step() -> None:
        model(x).sum().backward()
        model.zero_grad()

    return step


def test_fsdp2_hides_all_but_the_first_gather_and_the_last_reduction_behind_products(
    job: str,
) -> None:
    rows = 16384
    one = product(rows, WIDTH, job)
    weight = product(WIDTH, WIDTH, job, inner=rows)
    gather, reduce = (collective(op, BYTES, job) for op in ("all_gather", "reduce_scatter"))
    # Forward: the first gather, then products. Backward: two products a layer; the layers' gathers
    # and reductions run beside them, and the last reduction after them.
    by_hand = gather + LAYERS * one + LAYERS * (one + weight) + reduce
    # Beside the products are copies into and out of the buffers of collectives.
    assert by_hand < step_us(sharded(rows))[0] < 1.15 * by_hand


def test_fsdp2_with_little_to_compute_waits_for_every_gather_and_reduction(job: str) -> None:
    rows = 64
    gather, reduce = (collective(op, BYTES, job) for op in ("all_gather", "reduce_scatter"))
    # All weights once forward, and once more backward; all gradients once; one network.
    by_hand = 2 * LAYERS * gather + LAYERS * reduce
    # FSDP2 has a layer's copies into and out of buffers wait for its gather, and the next gather
    # for them: at most everything is one after another.
    elapsed, kernels = step_us(sharded(rows))
    assert by_hand < elapsed < 1.02 * (by_hand + kernels)


def test_a_tensor_parallel_step_is_its_products_and_two_reductions_a_block(job: str) -> None:
    rows, wide = 8192, 4 * WIDTH
    mesh = init_device_mesh("cuda", (RANKS,))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(WIDTH, wide, bias=False, dtype=torch.bfloat16)
            self.down = nn.Linear(wide, WIDTH, bias=False, dtype=torch.bfloat16)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.down(self.up(x))
            return out

    with torch.device("cuda"):
        model = nn.Sequential(*(Block() for _ in range(LAYERS)))
        x = torch.ones(rows, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def step() -> None:
        model(x).sum().backward()
        model.zero_grad()

    part = wide // RANKS
    up, down = product(rows, part, job), product(rows, WIDTH, job, inner=part)
    weights = product(part, WIDTH, job, inner=rows) + product(WIDTH, part, job, inner=rows)
    reduce = collective("all_reduce", rows * WIDTH * 2, job)
    # Forward: both products, and their sum over ranks. Backward: each product's two, and the sum of
    # the block's input gradient. Nothing runs beside a sum that the next product waits for.
    by_hand = LAYERS * (up + down + reduce) + LAYERS * (up + down + weights + reduce)
    assert step_us(step)[0] == pytest.approx(by_hand, rel=0.1)
