"""torch.compile(mode="reduce-overhead"): warmed up, recorded, replayed."""

import torch
from torch import nn

import peakline


def peaks(mode: str | None, steps: int) -> list[tuple[int, int]]:
    with peakline.virtual_gpu("h200"):
        with torch.device("cuda"):
            model = nn.Sequential(
                *[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))] * 2
            )
            x = torch.rand(4096, 1024)
        compiled = torch.compile(model, mode=mode)
        found = []
        for _ in range(steps):
            torch.cuda.reset_peak_memory_stats()
            compiled(x).square().mean().backward()
            model.zero_grad(set_to_none=True)
            found.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
    return found


def test_a_replay_allocates_little_and_holds_the_graphs_pool() -> None:
    warm_up, record, *replays = peaks("reduce-overhead", 4)
    assert replays[0] == replays[1]
    assert replays[0][0] < min(warm_up[0], record[0])
    assert replays[0][1] >= record[1]


def test_another_shape_is_recorded_beside_the_first() -> None:
    with peakline.virtual_gpu("h200"):
        model = nn.Sequential(nn.Linear(256, 256), nn.GELU()).cuda()
        compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
        reserved = []
        for rows in (64, 64, 64, 8192, 8192, 8192, 64):
            out = compiled(torch.rand(rows, 256, device="cuda"))
            assert out.shape == (rows, 256)
            del out
            reserved.append(torch.cuda.memory_reserved())
        assert reserved[5] > reserved[2]
        assert reserved[6] == reserved[5]
