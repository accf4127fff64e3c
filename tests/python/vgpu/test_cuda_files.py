"""Virtual tensors written, read, pickled and copied."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch

import peakline


def test_a_checkpoint_can_be_saved_and_loaded_on_either_device(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with peakline.virtual_gpu("h200"):
        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.zeros(2, 64, device="cuda")).sum().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        for place in ("cuda", "cuda:0", "cpu", None):
            state = torch.load(path, map_location=place)
            expected = "cpu" if place == "cpu" else "cuda"
            assert state["model"]["weight"].device.type == expected
            assert state["model"]["weight"].shape == (64, 64)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        assert optimizer.state[model.weight]["exp_avg"].is_cuda
    # Outside, the file is an ordinary one of tensors that were on CUDA.
    outside = torch.load(path, map_location="cpu")
    assert outside["model"]["bias"].shape == (64,)


def test_a_real_checkpoint_loads_onto_the_virtual_gpu(tmp_path: Path) -> None:
    path = tmp_path / "real.pt"
    torch.save({"w": torch.arange(6.0).reshape(2, 3)}, path)
    with peakline.virtual_gpu("h200"):
        w = torch.load(path, map_location="cuda")["w"]
        assert w.is_cuda
        assert w.shape == (2, 3)
        assert torch.cuda.memory_allocated() == 512


def test_known_values_are_saved_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "values.pt"
    with peakline.virtual_gpu("h200"):
        torch.save(torch.tensor([1, 2, 3], device="cuda"), path)
    assert torch.load(path, map_location="cpu").tolist() == [1, 2, 3]


def test_copies_and_pickles_are_new_storages() -> None:
    with peakline.virtual_gpu("h200"):
        model = torch.nn.Linear(256, 256, bias=False).cuda()
        one = torch.cuda.memory_allocated()
        twin = copy.deepcopy(model)
        assert twin.weight.is_cuda
        assert torch.cuda.memory_allocated() == 2 * one
        again = pickle.loads(pickle.dumps(model.weight.detach()))
        assert again.is_cuda
        assert again.shape == (256, 256)


def test_storages_can_be_made_cloned_and_resized() -> None:
    with peakline.virtual_gpu("h200"):
        storage = torch.UntypedStorage(4096, device="cuda")
        assert storage.device.type == "cuda"
        assert torch.cuda.memory_allocated() == 4096
        twin = storage.clone()
        assert torch.cuda.memory_allocated() == 8192
        twin.resize_(0)
        assert torch.cuda.memory_allocated() == 4096
        twin.resize_(1 << 20)
        assert torch.cuda.memory_allocated() == 4096 + (1 << 20)
        assert torch.UntypedStorage(16).nbytes() == 16
        host = torch.UntypedStorage(8)
        host.resize_(32)
        assert host.nbytes() == 32


def test_sharing_memory_with_another_process_is_refused() -> None:
    with peakline.virtual_gpu("h200"):
        storage = torch.zeros(4, device="cuda").untyped_storage()
        with pytest.raises(RuntimeError, match="other processes"):
            storage._share_cuda_()
