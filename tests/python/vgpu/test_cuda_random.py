"""Generators of a virtual GPU: seeds and states."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

import peakline


def test_seeds_are_kept_per_device() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        torch.cuda.manual_seed(7)
        assert torch.cuda.initial_seed() == 7
        torch.cuda.manual_seed_all(9)
        assert [g.initial_seed() for g in torch.cuda.default_generators] == [9, 9]
        torch.manual_seed(11)
        assert torch.cuda.initial_seed() == 11
        torch.cuda.seed()
        torch.cuda.seed_all()
        seeds = [g.initial_seed() for g in torch.cuda.default_generators]
        assert seeds[0] == seeds[1]


def test_a_state_can_be_taken_and_put_back() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        torch.cuda.manual_seed_all(3)
        state = torch.cuda.get_rng_state()
        assert state.dtype == torch.uint8
        assert not state.is_cuda
        everyone = torch.cuda.get_rng_state_all()
        assert len(everyone) == 2
        torch.cuda.manual_seed_all(4)
        torch.cuda.set_rng_state_all(everyone)
        assert torch.cuda.initial_seed() == 3
        torch.cuda.set_rng_state(state, "cuda:1")
        assert torch.equal(torch.cuda.get_rng_state(1), state)


def test_fork_rng_leaves_the_state_alone() -> None:
    with peakline.virtual_gpu("h200"):
        torch.cuda.manual_seed(5)
        with torch.random.fork_rng():
            torch.cuda.manual_seed(6)
        assert torch.cuda.initial_seed() == 5


def test_a_generator_of_the_device_is_taken_by_random_ops() -> None:
    with peakline.virtual_gpu("h200"):
        generator = torch.Generator("cuda")
        assert generator.device.type == "cuda"
        generator.manual_seed(1)
        assert generator.initial_seed() == 1
        x = torch.rand(4, device="cuda", generator=generator)
        assert x.is_cuda
        assert torch.randperm(16, device="cuda", generator=generator).shape == (16,)


def test_checkpointing_preserves_the_state_and_recomputes() -> None:
    with peakline.virtual_gpu("h200"):
        layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5)).cuda()
        x = torch.zeros(8, 64, device="cuda", requires_grad=True)
        for reentrant in (False, True):
            loss = checkpoint(layer, x, use_reentrant=reentrant, preserve_rng_state=True).sum()
            loss.backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape


def test_seeding_inside_leaves_the_cpu_generator_as_a_real_run_would() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3).tolist()
    with peakline.virtual_gpu("h200"):
        torch.manual_seed(0)
        torch.rand(3, device="cuda")
        assert torch.rand(3).tolist() == expected
