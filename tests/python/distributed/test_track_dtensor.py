"""`peakline.track` over DTensor, which learns shapes from fake tensors of global size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

import peakline

ROWS, COLUMNS = 512, 256
OPERANDS, RESULT = 2 * 4 * ROWS * COLUMNS, 4 * ROWS * ROWS  # bytes


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """One real rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    _clear_sharding_prop_cache()
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def product(mesh: DeviceMesh) -> DTensor:
    a = DTensor.from_local(torch.ones(ROWS, COLUMNS), mesh, [Shard(0)])
    b = DTensor.from_local(torch.ones(COLUMNS, ROWS), mesh, [Replicate()])
    result: DTensor = a @ b
    return result


def test_what_dtensor_imagines_is_not_memory(mesh: DeviceMesh) -> None:
    with peakline.track() as run:
        result = product(mesh)
    assert result.to_local()[0, 0] == COLUMNS
    assert run.peak("cpu").bytes == OPERANDS + RESULT


def test_nor_is_it_when_the_programs_own_tensors_are_fake(mesh: DeviceMesh) -> None:
    with peakline.track() as run, FakeTensorMode():
        result = product(mesh)
        assert run.peak("cpu").bytes == OPERANDS + RESULT
        del result
