"""Products of several matrices at once, as the experts of a layer have them."""

from collections.abc import Iterator

import pytest
import torch

import peakline

CUBLAS = 32 << 20  # its workspace on an H200


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with peakline.virtual_gpu("h200"):
        yield


def multiplied(dtype: torch.dtype, columns: int = 64) -> torch.Tensor:
    rows = torch.zeros(32, 16, dtype=dtype, device="cuda", requires_grad=True)
    experts = torch.zeros(4, columns, 16, dtype=dtype, device="cuda", requires_grad=True)
    ends = torch.tensor([8, 16, 24, 32], dtype=torch.int32, device="cuda")
    return torch._grouped_mm(rows, experts.transpose(1, 2), offs=ends)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_experts_of_every_type_are_multiplied_forward_and_backward(dtype: torch.dtype) -> None:
    product = multiplied(dtype)
    assert product.shape == (32, 64)
    assert product.dtype == dtype
    product.sum().backward()


def test_rows_of_the_result_begin_at_multiples_of_16_bytes() -> None:
    assert multiplied(torch.float32, columns=30).stride() == (32, 1)
    assert multiplied(torch.bfloat16, columns=30).stride() == (32, 1)


def test_only_bfloat16_has_a_kernel_without_cublas() -> None:
    multiplied(torch.bfloat16)
    assert torch.cuda.max_memory_allocated() < CUBLAS
    multiplied(torch.float32)
    assert torch.cuda.max_memory_allocated() > CUBLAS
