"""A forked child is not recorded, waits for nothing, and may track for itself."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable

import pytest
import torch

import peakline
from peakline.mem_tracker import MemTracker
from peakline.memory_tracker import MemoryTracker
from track_models import Net, train_step

HANGS = 120  # seconds, after which a child is taken to wait for ever
CPU = torch.device("cpu")


def in_child(work: Callable[[], object]) -> None:
    """Forks; the child does `work` and must end well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(HANGS)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def train(model: Net, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        train_step(model, optimizer)


def test_a_forked_child_that_trains_neither_hangs_nor_is_recorded() -> None:
    model = Net(layers=12)
    optimizer = torch.optim.Adam(model.parameters())
    with peakline.track(model, optimizer) as run:
        train(model, optimizer, 2)
        in_child(lambda: train(model, optimizer, 400))
        train(model, optimizer, 2)
    assert len(run.steps) == 4
    assert run.warnings == []


def test_a_forked_child_can_ask_the_run_for_what_is_written() -> None:
    with peakline.track() as run:
        held = torch.empty(1000, dtype=torch.uint8)
        assert run.peak("cpu").bytes == 1000

        def ask() -> None:
            torch.empty(1 << 20, dtype=torch.uint8)
            assert run.peak("cpu").bytes == 1000

        in_child(ask)
    del held


def test_a_forked_child_can_track_for_itself() -> None:
    block = peakline.track()
    run = block.__enter__()
    held = torch.empty(1000, dtype=torch.uint8)

    def track_again() -> None:
        model = Net()
        with peakline.track(model) as own:
            model(torch.randn(8, 64)).sum().backward()
            big = torch.empty(1 << 22, dtype=torch.uint8)
        assert own.peak("cpu").bytes > big.nbytes
        assert {row.path for row in own.modules()} >= {"Net", "Net.head"}
        block.__exit__(None, None, None)
        with peakline.track() as last:
            torch.empty(7, dtype=torch.uint8)
        assert last.peak("cpu").bytes == 7

    in_child(track_again)
    block.__exit__(None, None, None)
    assert run.peak("cpu").bytes == held.nbytes


def test_a_fork_inside_a_backward_leaves_both_processes_working() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())

    def go_on() -> None:
        for _ in range(100):
            model(torch.randn(8, 64))
            optimizer.step()

    with peakline.track(model, optimizer) as run:
        loss = model(torch.randn(8, 64)).square().mean()
        # torch itself runs no backward in such a child.
        model.head.weight.register_hook(lambda grad: in_child(go_on))
        loss.backward()
        optimizer.step()
    assert len(run.steps) == 1


def test_forks_while_another_thread_allocates_leave_no_lock_held() -> None:
    done = threading.Event()

    def allocate() -> None:
        while not done.is_set():
            torch.ones(64)

    def use_everything() -> None:
        torch.ones(128)
        assert tracker.get_tracker_snapshot()[CPU]["Total"] > 0

    thread = threading.Thread(target=allocate)
    with peakline.track(), MemTracker() as tracker:
        held = torch.ones(256)
        thread.start()
        try:
            for _ in range(20):
                in_child(use_everything)
        finally:
            done.set()
            thread.join()
    del held


def test_a_memtracker_goes_on_in_a_forked_child_without_the_parent_noticing() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    with MemTracker() as tracker:
        tracker.track_external(model, optimizer)
        train(model, optimizer, 2)
        before = tracker.get_tracker_snapshot()

        def train_more() -> None:
            kept = torch.ones(1 << 16)
            train(model, optimizer, 5)
            total = tracker.get_tracker_snapshot()[CPU]["Total"]
            assert total == before[CPU]["Total"] + kept.nbytes

        in_child(train_more)
        assert tracker.get_tracker_snapshot() == before


@pytest.mark.parametrize("leaves", [True, False])
def test_a_memorytracker_goes_on_in_a_forked_child(leaves: bool) -> None:
    model = Net()
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    model(torch.randn(8, 64)).sum().backward()

    def more() -> None:
        before = tracker._op_index
        model(torch.randn(8, 64)).sum().backward()
        assert tracker._op_index > before
        if leaves:
            tracker.stop()

    in_child(more)
    tracker.stop()
