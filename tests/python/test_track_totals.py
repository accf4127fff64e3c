"""Totals are the allocator's: compared with torch.profiler's memory events, and with plain sums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import peakline
from track_models import Net, buffer_bytes, parameter_bytes, train_step


def profiler_peak(prof: torch.profiler.profile) -> int:
    """The highest sum of the profiler's memory events, from zero."""
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda e: e.start_ns())
    total = highest = 0
    for event in events:
        total += event.nbytes()
        highest = max(highest, total)
    return highest


def conv_step() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    model(torch.randn(4, 3, 16, 16)).sum().backward()


def attention_step() -> None:
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    layer(torch.randn(2, 16, 32)).sum().backward()


def rnn_step() -> None:
    model = nn.LSTM(16, 32, 2, batch_first=True)
    model(torch.randn(4, 10, 16))[0].sum().backward()


def train_three_steps() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    for _ in range(3):
        train_step(model, optimizer)


@pytest.mark.parametrize("work", [conv_step, attention_step, rnn_step, train_three_steps])
def test_peak_is_the_one_that_the_profilers_memory_events_sum_to(work: Callable[[], None]) -> None:
    work()  # caches of libraries are filled
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        torch.profiler.profile(activities=activities, profile_memory=True) as prof,
        peakline.track() as run,
    ):
        work()
    assert run.peak("cpu").bytes == profiler_peak(prof)


def test_peak_of_plain_allocations_is_their_sum() -> None:
    with peakline.track() as run:
        a = torch.empty(1000, dtype=torch.uint8)
        b = torch.empty(500, dtype=torch.uint8)
        del a
        c = torch.empty(700, dtype=torch.uint8)
        del b, c
    peak = run.peak("cpu")
    assert peak.bytes == 1500
    assert run.warnings == []


def test_memory_held_by_parameters_from_before_is_in_the_total() -> None:
    model = Net()
    with peakline.track(model) as run:
        extra = torch.empty(12345, dtype=torch.uint8)
    peak = run.peak()
    assert peak.bytes == parameter_bytes(model) + buffer_bytes(model) + 12345
    assert peak.by_category["Parameter"] == parameter_bytes(model)
    assert peak.by_category["Buffer"] == buffer_bytes(model)
    del extra


def test_parameters_freed_inside_the_block_leave_the_total() -> None:
    model = nn.Linear(1000, 100, bias=False)
    with peakline.track(model) as run:
        del model
        torch.empty(1000, dtype=torch.uint8)
    assert run.peak().bytes == 400_000
    assert run.timeline()[-1].lowest < 400_000


def test_gradients_and_state_from_before_are_counted_and_named() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    train_step(model, optimizer)
    model(torch.randn(4, 64)).sum().backward()
    with peakline.track(model, optimizer) as run:
        torch.empty(1, dtype=torch.uint8)
    by_category = run.peak().by_category
    state = sum(
        t.nbytes for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)
    )
    assert by_category["Gradient"] == parameter_bytes(model)
    assert by_category["Optstate"] == state


def test_growing_a_parameter_from_before_is_seen() -> None:
    layer = nn.Linear(10, 10, bias=False)
    with peakline.track(layer) as run, torch.no_grad():
        layer.weight.data.resize_(20, 10)
    # Both lie side by side while the old values are copied.
    assert run.peak().bytes == 400 + 800


def test_nothing_allocated_is_an_answer_and_not_an_error() -> None:
    with peakline.track() as run:
        pass
    assert run.devices == []
    assert run.steps == []
    assert "Nothing was allocated" in str(run)
    with pytest.raises(ValueError, match="nothing was allocated"):
        run.peak()


def test_a_device_that_was_not_used_is_named_in_the_error() -> None:
    with peakline.track() as run:
        torch.empty(1)
    with pytest.raises(ValueError, match=r"'cuda:0'.*one of: cpu"):
        run.peak("cuda")


def test_out_of_memory_leaves_the_recording_whole() -> None:
    with peakline.track() as run:
        kept = torch.empty(100, dtype=torch.uint8)
        with pytest.raises(RuntimeError):
            torch.empty(1 << 60, dtype=torch.uint8)
    assert run.peak().bytes == kept.nbytes
