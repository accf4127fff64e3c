"""Old names of CUDA tensors work, and nothing names the key that virtual tensors have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import peakline

WALK = Path(__file__).with_name("name_walk.py")


@pytest.fixture
def gpu() -> Iterator[None]:
    with peakline.virtual_gpu("h200"):
        yield


def test_no_public_name_of_torch_says_privateuseone() -> None:
    done = subprocess.run(
        [sys.executable, str(WALK)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr[-2000:]


def test_new_tensor_takes_type_and_device_of_its_tensor(gpu: None) -> None:
    x = torch.ones(3, dtype=torch.float16, device="cuda")
    made = x.new_tensor([1, 2])
    assert (made.dtype, made.device) == (torch.float16, torch.device("cuda:0"))
    assert made.tolist() == [1, 2]
    assert x.new_tensor(3, dtype=torch.int64).item() == 3
    assert not torch.ones(2).new_tensor([1.0]).is_cuda


def test_new_makes_tensors_of_sizes_numbers_and_tensors(gpu: None) -> None:
    x = torch.ones(3, 4, device="cuda")
    assert x.new(2, 5).shape == (2, 5)
    assert x.new(torch.Size([6])).shape == (6,)
    assert x.new([1.0, 2.0]).tolist() == [1, 2]
    assert x.new().shape == (0,)
    assert x.new(x).data_ptr() == x.data_ptr()
    assert x.new(7).is_cuda
    assert torch.ones(2).new(3).device.type == "cpu"


@pytest.mark.parametrize("name", ["Float", "Half", "BFloat16", "Double", "Long", "Byte", "Bool"])
def test_legacy_types_make_and_recognise_tensors(gpu: None, name: str) -> None:
    kind = getattr(torch.cuda, f"{name}Tensor")
    made = kind(2, 3)
    assert made.shape == (2, 3)
    assert made.is_cuda
    assert made.type() == f"torch.cuda.{name}Tensor"
    assert isinstance(made, kind)
    assert not isinstance(made.cpu(), kind)
    assert kind([1, 0]).tolist() == [1, 0]
    assert torch.ones(2).type(kind).dtype == made.dtype


def test_legacy_types_are_what_they_were_after_the_block() -> None:
    before = torch.cuda.FloatTensor
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.FloatTensor is not before
    assert torch.cuda.FloatTensor is before
    assert "new_tensor" not in vars(torch.Tensor)


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_default_tensor_type_on_cuda_makes_tensors_there_until_it_is_taken_back() -> None:
    with peakline.virtual_gpu("h200"):
        torch.set_default_tensor_type("torch.cuda.HalfTensor")
        assert torch.ones(2).type() == "torch.cuda.HalfTensor"
        assert torch.nn.Linear(2, 2).weight.is_cuda
        torch.set_default_tensor_type("torch.FloatTensor")
        assert torch.ones(2).type() == "torch.FloatTensor"
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        assert torch.tensor([1.0]).is_cuda
    assert torch.ones(2).type() == "torch.FloatTensor"


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_the_base_class_makes_tensors_of_the_default_type() -> None:
    with peakline.virtual_gpu("h200"):
        torch.set_default_tensor_type("torch.cuda.HalfTensor")
        far = torch.Tensor([1e4])
        assert (far.type(), far.tolist()) == ("torch.cuda.HalfTensor", [1e4])
        assert torch.Tensor(2, 3).shape == (2, 3)
        assert torch.Tensor(2, 3).is_cuda
        assert torch.Tensor(np.zeros((2, 3))).type() == "torch.cuda.HalfTensor"
        assert torch.Tensor(torch.zeros(2, device="cpu")).device.type == "cpu"  # it is that tensor
        assert isinstance(torch.nn.Parameter(torch.Tensor(2)), torch.nn.Parameter)
        torch.set_default_tensor_type("torch.FloatTensor")
        assert torch.Tensor([1.0]).device.type == "cpu"
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert torch.Tensor(2).device.type == "cpu"
    assert "__new__" not in vars(torch.Tensor)


def test_torch_tells_how_it_was_built(gpu: None) -> None:
    assert "CUDA" in torch.__config__.show()


def test_a_step_of_cuda_graphs_may_be_marked(gpu: None) -> None:
    torch.compiler.cudagraph_mark_step_begin()


def test_a_jiterator_kernel_gives_tensors_of_the_common_type(gpu: None) -> None:
    code = "template <typename T> T f(T x, T y) { return x + y; }"
    f = torch.cuda.jiterator._create_jit_fn(code)
    made = f(torch.ones(3, 1, device="cuda"), torch.ones(4, dtype=torch.int32, device="cuda"))
    assert (made.shape, made.dtype) == ((3, 4), torch.float32)
