"""FakeTensorMode on cuda works inside, also where torch has no CUDA."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import peakline


def test_fake_tensors_on_cuda_train_and_take_no_virtual_memory() -> None:
    with peakline.virtual_gpu("h200"):
        with FakeTensorMode(), torch.device("cuda"):
            model = torch.nn.Linear(1024, 1024)
            x = torch.zeros(8, 1024)
            assert isinstance(x, FakeTensor)
            y = model(x)
            assert y.device == torch.device("cuda:0")
            y.sum().backward()
        assert torch.cuda.memory_allocated() == 0
        assert torch.cuda.max_memory_allocated() <= 512
