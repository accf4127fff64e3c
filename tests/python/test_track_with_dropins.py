"""`track` and a drop-in at once count as each does alone, in any order of entering and leaving."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import peakline
from peakline.fsdp2_mem_tracker import FSDPMemTracker
from peakline.mem_tracker import MemTracker
from peakline.memory_tracker import MemoryTracker
from peakline.mod_tracker import ModTracker
from track_models import Net, train_step

CPU = torch.device("cpu")
ORDERS = [(enters, leaves) for enters in ("track", "dropin") for leaves in ("track", "dropin")]
in_any_order = pytest.mark.parametrize(("first_in", "first_out"), ORDERS)


class Both:
    """Enters and leaves a track() and a drop-in in the order asked for."""

    def __init__(self, track: Any, dropin: Any, first_in: str, first_out: str) -> None:
        self.contexts = {"track": track, "dropin": dropin}
        self.first_in, self.first_out = first_in, first_out
        self.values: dict[str, Any] = {}

    def _in_order(self, first: str) -> list[str]:
        return sorted(self.contexts, key=lambda name: name != first)

    def enter(self) -> None:
        for name in self._in_order(self.first_in):
            self.values[name] = self.contexts[name].__enter__()

    def leave_first(self) -> None:
        self.contexts[self.first_out].__exit__(None, None, None)

    def leave_second(self) -> None:
        self.contexts[self._in_order(self.first_out)[1]].__exit__(None, None, None)


def work(model: Net, optimizer: torch.optim.Optimizer, steps: int = 4) -> None:
    for _ in range(steps):
        train_step(model, optimizer)


def made() -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.Adam(model.parameters())


def snapshot_of(tracker: MemTracker) -> dict[str, int]:
    return dict(tracker.get_tracker_snapshot("peak")[CPU])


def run_of(run: peakline.Run) -> tuple[Any, ...]:
    calls = {row.path: row.forward_calls for row in run.modules()}
    peak = run.peak("cpu")
    return peak.bytes, peak.by_category, peak.by_module, calls, run.steps


def alone(fake: bool) -> tuple[tuple[Any, ...], dict[str, int]]:
    """What each says of the same work, alone."""
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, optimizer = made()
        with peakline.track(model, optimizer) as run:
            work(model, optimizer)
        model, optimizer = made()
        with MemTracker() as tracker:
            tracker.track_external(model, optimizer)
            work(model, optimizer)
    return run_of(run), snapshot_of(tracker)


@pytest.mark.parametrize("fake", [False, True])
@in_any_order
def test_track_and_memtracker_count_as_they_do_alone(
    fake: bool, first_in: str, first_out: str
) -> None:
    expected_run, expected_snapshot = alone(fake)
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, optimizer = made()
        tracker = MemTracker()
        both = Both(peakline.track(model, optimizer), tracker, first_in, first_out)
        both.enter()
        tracker.track_external(model, optimizer)
        work(model, optimizer)
        both.leave_first()
        both.leave_second()
    assert snapshot_of(tracker) == expected_snapshot
    assert run_of(both.values["track"]) == expected_run
    assert both.values["track"].warnings == []


@pytest.mark.parametrize("fake", [False, True])
@in_any_order
def test_who_stays_goes_on_counting_when_the_other_leaves(
    fake: bool, first_in: str, first_out: str
) -> None:
    with FakeTensorMode() if fake else contextlib.nullcontext():
        tracker = MemTracker()
        both = Both(peakline.track(), tracker, first_in, first_out)
        both.enter()
        first = torch.ones(1000, dtype=torch.uint8)
        both.leave_first()
        del first
        second = torch.ones(3000, dtype=torch.uint8)
        if first_out == "track":
            assert tracker.get_tracker_snapshot()[CPU]["Total"] == 3000
        both.leave_second()
    left_first = {"track": 1000, "dropin": 3000}[first_out]
    assert both.values["track"].peak("cpu").bytes == left_first
    assert snapshot_of(tracker)["Total"] == {1000: 3000, 3000: 1000}[left_first]
    del second


@pytest.mark.parametrize("fake", [False, True])
def test_one_storage_seen_by_several_ends_once_in_each(fake: bool) -> None:
    with FakeTensorMode() if fake else contextlib.nullcontext():
        first, second = MemTracker(), MemTracker()
        kept = torch.ones(500, dtype=torch.uint8)
        first.track_external(kept)
        second.track_external(kept)
        with first, peakline.track() as run, second:
            shared = torch.ones(1000, dtype=torch.uint8)
            for tracker in (first, second):
                assert tracker.get_tracker_snapshot()[CPU]["Total"] == 1500
            del shared, kept
            for tracker in (first, second):
                assert CPU not in tracker.get_tracker_snapshot()
            torch.ones(700, dtype=torch.uint8)
    assert run.peak("cpu").bytes == 1000


@in_any_order
def test_track_and_modtracker_name_the_same_modules(first_in: str, first_out: str) -> None:
    model, optimizer = made()
    tracker = ModTracker()
    seen: list[str] = []
    tracker.register_user_hooks(
        pre_fw_hook=lambda module, args: seen.append(tracker.get_known_fqn(module) or "")
    )
    both = Both(peakline.track(model, optimizer), tracker, first_in, first_out)
    both.enter()
    work(model, optimizer, steps=1)
    both.leave_first()
    both.leave_second()
    rows = {row.path: row.forward_calls for row in both.values["track"].modules()}
    assert {name: seen.count(name) for name in seen} == {k: v for k, v in rows.items() if v}


class Monitoring:
    """A MemoryTracker as a context."""

    def __init__(self, model: Net) -> None:
        self.model, self.tracker = model, MemoryTracker()

    def __enter__(self) -> MemoryTracker:
        self.tracker.start_monitor(self.model)
        return self.tracker

    def __exit__(self, *args: object) -> None:
        self.tracker.stop()


@in_any_order
def test_track_and_memorytracker_count_as_they_do_alone(first_in: str, first_out: str) -> None:
    model, optimizer = made()
    with Monitoring(model) as expected:
        work(model, optimizer)
    (expected_run, _) = alone(fake=False)
    model, optimizer = made()
    both = Both(peakline.track(model, optimizer), Monitoring(model), first_in, first_out)
    both.enter()
    work(model, optimizer)
    both.leave_first()
    both.leave_second()
    assert both.values["dropin"].memories_allocated == expected.memories_allocated
    assert run_of(both.values["track"])[0] == expected_run[0]


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded() -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Net()
    mesh = init_device_mesh("cpu", (1,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters())


@pytest.mark.usefixtures("one_rank")
@in_any_order
def test_track_and_fsdpmemtracker_count_as_they_do_alone(first_in: str, first_out: str) -> None:
    model, optimizer = sharded()
    work(model, optimizer, steps=1)
    with FSDPMemTracker(model, optimizer) as expected:
        work(model, optimizer, steps=2)
    model, optimizer = sharded()
    work(model, optimizer, steps=1)
    with peakline.track(model, optimizer) as expected_run:
        work(model, optimizer, steps=2)
    model, optimizer = sharded()
    work(model, optimizer, steps=1)
    tracker = FSDPMemTracker(model, optimizer)
    both = Both(peakline.track(model, optimizer), tracker, first_in, first_out)
    both.enter()
    work(model, optimizer, steps=2)
    both.leave_first()
    both.leave_second()
    assert snapshot_of(tracker) == snapshot_of(expected)
    assert both.values["track"].peak("cpu").bytes == expected_run.peak("cpu").bytes


def test_steps_repeat_for_the_recording_while_a_tracker_still_sees_every_op() -> None:
    model, optimizer = made()
    tracker = peakline.track(model, optimizer)
    with tracker as run, Monitoring(model) as memory:
        work(model, optimizer, steps=6)
        assert len(run.steps) == 6  # what is written by now has been looked at
        assert tracker._tracker.repeating
        rows = memory._op_index
        work(model, optimizer, steps=1)
        assert memory._op_index > rows
    assert len({step.peak_allocated for step in run.steps[2:]}) == 1


def test_without_ops_the_recording_has_none_though_a_tracker_sees_them() -> None:
    model, optimizer = made()
    with peakline.track(model, optimizer, ops=False) as run, MemTracker():
        work(model, optimizer, steps=1)
    assert run.top() == []


def test_trackers_that_leave_out_of_order_put_resize_back() -> None:
    resize = torch.UntypedStorage.resize_
    first, second = MemTracker(), MemTracker()
    first.__enter__()
    second.__enter__()
    kept = torch.ones(1000, dtype=torch.uint8)
    first.__exit__(None, None, None)
    kept.untyped_storage().resize_(4000)
    assert second.get_tracker_snapshot()[CPU]["Total"] == 4000
    second.__exit__(None, None, None)
    assert torch.UntypedStorage.resize_ is resize
