"""Parts of a program that it gives names to."""

import contextlib
import threading
from collections.abc import Iterator

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


def test_a_region_around_a_yield_holds_for_the_block_of_a_context_manager():
    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        with peakline.region(name):
            yield

    with peakline.track() as run, phase("train"):
        kept = torch.ones(1 << 18)
    assert [(row.path, row.at_peak) for row in run.regions()] == [("train", 1 << 20)]
    del kept


def test_a_region_that_a_generator_ends_late_does_not_end_another():
    def batches() -> Iterator[torch.Tensor]:
        with peakline.region("load"):
            yield torch.ones(1 << 10)

    with peakline.track() as run:
        loader = batches()
        next(loader)
        with peakline.region("train"):
            assert next(loader, None) is None  # "load" ends here
            kept = torch.ones(1 << 18)
        after = torch.ones(1 << 18)
    paths = {row.path: row.at_peak for row in run.regions()}
    assert paths == {"load": 0, "load / train": 0, "train": 1 << 20}
    del kept, after


def test_a_generator_that_ends_its_region_on_another_thread_ends_no_other():
    def batches() -> Iterator[None]:
        with peakline.region("load"):
            yield

    kept = []
    with peakline.track() as run:
        loader = batches()
        next(loader)

        def work() -> None:
            with peakline.region("work"):
                next(loader, None)
                kept.append(torch.ones(1 << 18))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert {row.path: row.at_peak for row in run.regions()} == {"load": 0, "work": 1 << 20}


def test_threads_may_share_one():
    shared = peakline.region("work")
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with shared:
            inside.set()
            leave.wait()

    with peakline.track() as run:
        thread = threading.Thread(target=work)
        with shared:
            thread.start()
            inside.wait()
        kept = torch.ones(1 << 18)
        leave.set()
        thread.join()
    assert [(row.path, row.entered, row.at_peak) for row in run.regions()] == [("work", 2, 0)]
    del kept
