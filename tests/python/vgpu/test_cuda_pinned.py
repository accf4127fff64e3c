"""Pinned memory and loaders."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import peakline


def test_pinned_tensors_say_so_and_keep_their_values() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.arange(8)
        assert not x.is_pinned()
        pinned = x.pin_memory()
        assert pinned.is_pinned()
        assert pinned.tolist() == list(range(8))
        assert torch.empty(4, pin_memory=True).is_pinned()
        assert pinned.to("cuda", non_blocking=True).is_cuda
        assert torch.cuda.memory_allocated() == 0


def test_small_values_survive_the_way_to_the_device_and_back() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.tensor([3, 1, 2])
        assert x.cuda().cpu().tolist() == [3, 1, 2]
        assert x.to("cuda")[1].item() == 1
        assert int(x.cuda().sum()) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_pins_feeds_the_device(workers: int) -> None:
    data = TensorDataset(torch.arange(32).reshape(16, 2).float(), torch.arange(16))
    with peakline.virtual_gpu("h200"):
        loader = DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
        seen = []
        for x, y in loader:
            assert x.is_pinned()
            moved = x.cuda(non_blocking=True)
            assert moved.shape == (4, 2)
            seen += y.tolist()
        assert sorted(seen) == list(range(16))
