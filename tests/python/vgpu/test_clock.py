"""The clock of the virtual GPU: what streams, events, copies and the host's waits do to time."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import peakline


@pytest.fixture
def run() -> Iterator[peakline.Run]:
    with peakline.virtual_gpu("h200") as run:
        yield run


def events(count: int = 2) -> list[torch.cuda.Event]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]


def product(a: torch.Tensor, times: int) -> None:
    for _ in range(times):
        a @ a


@pytest.fixture
def large(run: peakline.Run) -> torch.Tensor:
    return torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)


def test_events_tell_the_time_of_kernels_between_them(large: torch.Tensor) -> None:
    start, one, four = events(3)
    product(large, 4)  # the host is ahead from here on
    start.record()
    product(large, 1)
    one.record()
    product(large, 3)
    four.record()
    assert 0.1 < start.elapsed_time(one) < 0.5
    assert one.elapsed_time(four) == pytest.approx(3 * start.elapsed_time(one), rel=0.1)


def test_the_host_runs_ahead_until_it_waits(run: peakline.Run, large: torch.Tensor) -> None:
    before = run.timing()
    product(large, 200)  # much more than what Python does meanwhile for the tests
    issued = run.timing()
    assert issued.host_ms - before.host_ms < (issued.elapsed_ms - before.elapsed_ms) / 2
    assert issued.bound_by == "compute"
    torch.cuda.synchronize()
    product(large, 1)
    assert run.timing().elapsed_ms > issued.elapsed_ms + 0.1


def test_many_small_ops_are_bound_by_the_host(run: peakline.Run) -> None:
    x = torch.ones(8, device="cuda")
    for _ in range(200):
        x = x + 1
    timing = run.timing()
    assert timing.bound_by == "host"
    assert timing.gpu_busy_ms < timing.elapsed_ms


def test_python_between_ops_takes_the_host_time(run: peakline.Run) -> None:
    def nothing() -> None:
        pass

    x = torch.ones(8, device="cuda")
    before = run.timing().host_ms
    x = x + 1
    plain = run.timing().host_ms - before
    before = run.timing().host_ms
    for _ in range(1000):
        nothing()
    x = x + 1
    assert run.timing().host_ms - before > plain + 0.5


def test_only_threads_that_issue_work_take_the_hosts_time(run: peakline.Run) -> None:
    def nothing() -> None:
        pass

    def busy(x: torch.Tensor | None) -> None:
        for _ in range(20_000):
            nothing()
        if x is not None:
            x + 1

    def taken(x: torch.Tensor | None) -> float:
        before = run.timing().host_ms
        thread = threading.Thread(target=busy, args=(x,))
        thread.start()
        thread.join()
        return run.timing().host_ms - before

    x = torch.ones(8, device="cuda")
    loading, issuing = taken(None), taken(x)
    assert issuing > 20
    assert loading < issuing / 10


def test_copies_run_beside_kernels_and_a_wait_orders_them(large: torch.Tensor) -> None:
    side, host = torch.cuda.Stream(), torch.ones(256 << 20, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device="cuda")
    start, beside, waited = events(3)
    start.record()
    with torch.cuda.stream(side):
        there.copy_(host, non_blocking=True)
    product(large, 2)
    beside.record()
    torch.cuda.current_stream().wait_stream(side)
    waited.record()
    assert start.elapsed_time(beside) < 1
    assert start.elapsed_time(waited) > 3  # 256 MiB over the bus


def test_pictures_drawn_on_the_host_take_its_time_and_come_slowly(run: peakline.Run) -> None:
    before = run.timing()
    torch.rand(64, 3, 224, 224, device="cuda")
    there = run.timing()
    drawn = torch.rand(64, 3, 224, 224)
    here = run.timing()
    drawn.to("cuda")
    copied = run.timing()
    assert there.host_ms - before.host_ms < 0.1
    assert here.host_ms - there.host_ms > 10  # ten million numbers, nanoseconds each
    assert here.gpu_busy_ms == there.gpu_busy_ms
    assert copied.gpu_busy_ms - here.gpu_busy_ms > drawn.nbytes / 30e9 * 1e3


def test_small_pictures_cost_the_host_too_but_not_those_that_another_thread_draws(
    run: peakline.Run,
) -> None:
    before = run.timing().host_ms
    torch.randn(8, 3, 224, 224)  # made for real
    here = run.timing().host_ms
    loader = threading.Thread(target=lambda: torch.randn(8, 3, 224, 224))
    loader.start()
    loader.join()
    assert here - before > 1
    assert run.timing().host_ms - here < 0.1


def test_what_is_not_recorded_costs_the_host_less(run: peakline.Run) -> None:
    x = torch.ones(8, 8, device="cuda", requires_grad=True)

    def host_ms(recorded: bool) -> float:
        with torch.set_grad_enabled(recorded):
            before = run.timing().host_ms
            for _ in range(1000):
                x * 2
            return run.timing().host_ms - before

    assert host_ms(False) < 0.9 * host_ms(True)


def test_a_sequence_of_kernels_starts_with_its_first(run: peakline.Run) -> None:
    network = nn.LSTM(512, 512).cuda()
    x = torch.ones(400, 32, 512, device="cuda")
    network(x)
    torch.cuda.synchronize()
    before = run.timing()
    network(x)
    torch.cuda.synchronize()
    after = run.timing()
    busy, host = after.gpu_busy_ms - before.gpu_busy_ms, after.host_ms - before.host_ms
    assert min(busy, host) > 1
    assert after.elapsed_ms - before.elapsed_ms < max(busy, host) + 0.5 * min(busy, host)


def test_reading_a_value_waits_for_it(run: peakline.Run, large: torch.Tensor) -> None:
    product(large, 10)
    end = run.timing().elapsed_ms
    large[0, 0].item()
    x = torch.ones(8, device="cuda")
    (start,) = events(1)
    start.record()
    assert run.timing().elapsed_ms >= end
    assert run.timing().host_ms < end
    del x


def test_optimizers_that_change_tensors_in_place_take_time(run: peakline.Run) -> None:
    model = nn.Linear(4096, 4096, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(8, 4096, device="cuda")).sum().backward()
    optimizer.step()  # makes its state
    start, end = events()
    product(torch.ones(8192, 8192, device="cuda", dtype=torch.bfloat16), 4)  # the host is ahead
    start.record()
    optimizer.step()
    end.record()
    # 16.8 million elements, 28 bytes each, at some 3 TB/s
    assert start.elapsed_time(end) == pytest.approx(0.16, rel=0.4)


def test_single_precision_takes_longer_than_tf32(run: peakline.Run) -> None:
    a = torch.ones(4096, 4096, device="cuda")
    start, plain, fast = events(3)
    start.record()
    product(a, 2)
    plain.record()
    torch.set_float32_matmul_precision("high")
    try:
        product(a, 2)
    finally:
        torch.set_float32_matmul_precision("highest")
    fast.record()
    assert start.elapsed_time(plain) > 4 * plain.elapsed_time(fast)


def test_without_a_clock_there_is_no_timing() -> None:
    with peakline.virtual_gpu("h200", clock=False) as run:
        torch.ones(8, device="cuda")
        with pytest.raises(ValueError, match="no clock"):
            run.timing()


def test_timing_stays_after_the_virtual_gpu() -> None:
    with peakline.virtual_gpu("h200") as run:
        product(torch.ones(2048, 2048, device="cuda"), 3)
        inside = run.timing()
    after = run.timing()
    # Asking is Python, too, and the host's.
    assert dataclasses.replace(after, host_ms=inside.host_ms) == inside
    assert run.timing() == after


def test_a_tracked_run_has_no_clock() -> None:
    with peakline.track() as run:
        torch.ones(8)
    with pytest.raises(ValueError, match="virtual GPU"):
        run.timing()


def test_a_slower_gpu_takes_longer() -> None:
    def busy(gpu: str) -> float:
        with peakline.virtual_gpu(gpu) as run:
            product(torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16), 3)
            return run.timing().gpu_busy_ms

    assert busy("a100") > 2 * busy("h200")
