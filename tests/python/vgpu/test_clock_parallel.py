"""Steps of FSDP2 and of tensor parallelism against their critical path, worked out by hand.

The host costs nothing here, so that streams alone decide, and the GPU has round numbers: 128
multiprocessors with 800 TFLOP/s together, so 6.25 each; 3 us for a kernel and 1 more for a product;
links of 400 GB/s with 2 us a step.
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
ROUND = {
    **dict.fromkeys(("host_op_us", "host_backward_us", "host_python_us"), 0),
    **dict.fromkeys(("host_launch_us", "host_sync_us"), 0),
    **{"sm_count": 128, "tensor16_tflops": 1000, "tensor_share": 0.8},
    **{"kernel_us": 3, "gemm_us": 1, "nvlink_gbps": 400, "nvlink_us": 2},
}
# Microseconds. A weight of 4096 x 4096 in 16 bits is 33.55 MB, of which 7 of 8 parts pass each
# link: 29.36 MB / 400 GB/s = 73.4; 6 steps of 2; the kernel's 3.
GATHER = REDUCE = 73.4 + 12 + 3


@pytest.fixture
def gpu(tmp_path: Path) -> str:
    known = _C.cost.Profile("h200").to_toml().splitlines()
    kept = [line for line in known if line.split(" =")[0] not in ROUND]
    at = kept.index("[estimated]") + 1
    kept[at:at] = [f"{key} = {value}" for key, value in ROUND.items()]
    path = tmp_path / "round-numbers.toml"
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


def test_collectives_and_products_take_what_a_hand_works_out(gpu: str) -> None:
    assert collective("all_gather", BYTES, gpu) == pytest.approx(GATHER, abs=0.05)
    assert collective("reduce_scatter", BYTES, gpu) == pytest.approx(REDUCE, abs=0.05)
    # 128 x 16 tiles of 128 x 256 are 16 waves; a tile is 268.4 MFLOP, 42.95 us.
    assert product(16384, WIDTH, gpu) == pytest.approx(16 * 42.95 + 4, abs=0.1)
    # 32 x 16 tiles are 4 waves, each four times as deep.
    assert product(WIDTH, WIDTH, gpu, inner=16384) == pytest.approx(4 * 171.8 + 4, abs=0.1)


def test_fsdp2_hides_all_but_the_first_gather_and_the_last_reduction_behind_products(
    job: str,
) -> None:
    # Forward: the first gather, then a product of 691.2 a layer. Backward: two products a layer;
    # the layers' gathers and reductions run beside them, and the last reduction after them.
    by_hand = GATHER + 6 * 691.2 + 6 * (691.2 + 691.2) + REDUCE
    assert by_hand == pytest.approx(12_618, abs=1)
    # Beside the products are copies into and out of the buffers of collectives.
    assert by_hand < step_us(sharded(16384))[0] < 1.15 * by_hand


def test_fsdp2_with_little_to_compute_waits_for_every_gather_and_reduction(job: str) -> None:
    # All weights once forward, and once more backward; all gradients once; one network.
    by_hand = 2 * 6 * GATHER + 6 * REDUCE
    assert by_hand == pytest.approx(1591, abs=1)
    # FSDP2 has a layer's copies into and out of buffers wait for its gather, and the next gather
    # for them: at most everything is one after another.
    elapsed, kernels = step_us(sharded(64))
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

    # Each of a block's six products, two forward and four backward, is 1/8 of 8192 x 4096 x 16384:
    # 137.4 GFLOP in whole waves at 800 TFLOP/s, 171.8, and 4.
    one = 171.8 + 4
    assert product(rows, wide // RANKS, job) == pytest.approx(one, abs=0.1)
    # 67.1 MB, 14 of 8 parts of them over each link, 293.6; 6 steps of 2; 3.
    reduce = 293.6 + 12 + 3
    assert collective("all_reduce", rows * WIDTH * 2, job) == pytest.approx(reduce, abs=0.1)
    # Forward: both products, and their sum over ranks. Backward: each product's two, and the sum of
    # the block's input gradient. Nothing runs beside a sum that the next product waits for.
    by_hand = 6 * (2 * one + reduce) + 6 * (4 * one + reduce)
    assert by_hand == pytest.approx(10_032, abs=1)
    assert step_us(step)[0] == pytest.approx(by_hand, rel=0.1)
