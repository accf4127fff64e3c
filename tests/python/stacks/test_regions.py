"""Parts of a program that it gives names to."""

import threading

import pytest
import torch
from torch.profiler import record_function

import peakline


def test_a_region_has_its_own_peak():
    with peakline.track() as run:
        kept = torch.ones(1 << 18)
        with peakline.region("train"):
            torch.ones(1 << 20)
        with peakline.region("eval"):
            torch.ones(1 << 19)
    train, evaluation = run.regions()
    assert (train.path, train.entered, train.highest) == ("train", 1, (1 << 20) + (1 << 22))
    assert train.at_peak == 1 << 22
    assert (evaluation.path, evaluation.highest) == ("eval", (1 << 20) + (1 << 21))
    assert evaluation.at_peak == 0
    del kept


def test_ranges_of_the_profiler_are_regions_inside_others():
    with peakline.track() as run, peakline.region("train"):
        for _ in range(3):
            with record_function("loss"):
                torch.ones(1 << 18)
    assert [(row.path, row.entered) for row in run.regions()] == [("train", 1), ("train / loss", 3)]


def test_ranges_of_nvtx_are_regions_on_a_virtual_gpu():
    with peakline.virtual_gpu() as run:
        with torch.cuda.nvtx.range("step {}", 7):
            torch.ones(1 << 18, device="cuda")
        torch.cuda.nvtx.range_push("rest")
        torch.cuda.nvtx.range_pop()
    assert [row.path for row in run.regions("cuda:0")] == ["step 7", "rest"]


def test_the_ranges_that_torch_itself_names_are_left_out():
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    with peakline.track(model, optimizer) as run:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert run.regions() == []


def test_a_function_can_be_one():
    @peakline.region("work")
    def work() -> torch.Tensor:
        return torch.ones(1 << 18)

    work()  # nothing is tracked, and nothing happens
    with peakline.track() as run:
        assert work().numel() == 1 << 18
    assert [row.path for row in run.regions()] == ["work"]


def test_regions_belong_to_their_thread():
    with peakline.track() as run, peakline.region("main"):
        thread = threading.Thread(target=lambda: torch.ones(1 << 20))
        thread.start()
        thread.join()
    assert run.regions()[0].at_peak == 0


def test_a_region_without_a_name_is_refused():
    with pytest.raises(ValueError, match="give it a name"):
        peakline.region("")
