"""SyncBatchNorm's kernels exist on GPUs only, and torch has no shape functions for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

import peakline

RANKS = 4


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with peakline.virtual_gpu("h200"):
        dist.init_process_group("nccl", rank=0, world_size=RANKS)
        yield
        dist.destroy_process_group()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_and_evaluation_have_batch_norms_shapes(
    dtype: torch.dtype, layout: torch.memory_format
) -> None:
    norm = nn.SyncBatchNorm(16).cuda()
    pictures = torch.rand(4, 16, 8, 8, device="cuda", dtype=dtype).to(memory_format=layout)
    pictures.requires_grad_()
    result = norm(pictures)
    assert result.dtype == dtype
    assert result.stride() == pictures.stride()
    result.sum().backward()
    for tensor, gradient in ((pictures, pictures.grad), (norm.weight, norm.weight.grad)):
        assert gradient is not None
        assert (gradient.shape, gradient.dtype) == (tensor.shape, tensor.dtype)
    assert norm.eval()(pictures).shape == pictures.shape


def test_a_converted_network_trains_in_ddp_without_affine_parameters_too() -> None:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8, affine=False)]
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers).cuda())
    wrapped = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    wrapped(torch.rand(2, 3, 16, 16, device="cuda")).sum().backward()
    optimizer.step()


def test_gathering_into_an_output_of_another_shape() -> None:
    given = torch.rand(5, device="cuda")
    for shape in ((1, RANKS * 5), (RANKS * 5,), (RANKS, 5)):
        dist.all_gather_into_tensor(torch.empty(shape, device="cuda"), given)
