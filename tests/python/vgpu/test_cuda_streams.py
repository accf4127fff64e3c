"""Streams and events of a virtual GPU."""

from __future__ import annotations

import pytest
import torch
from torch.cuda import Event, Stream  # as programs import them: before the block

import peakline


def test_streams_are_torchs_own_class_to_isinstance() -> None:
    with peakline.virtual_gpu("h200"):
        stream = torch.cuda.Stream()
        assert isinstance(stream, torch.cuda.Stream)
        assert isinstance(stream, torch.Stream)
        assert isinstance(Stream(), Stream)
        assert isinstance(Event(), torch.Event)
        assert stream.device == torch.device("cuda:0")
        assert stream != torch.cuda.current_stream()
        assert stream == torch.cuda.Stream(
            stream_id=stream.stream_id, device_index=0, device_type=1
        )
        assert len({stream, torch.cuda.current_stream(), torch.cuda.default_stream()}) == 2


def test_the_current_stream_follows_contexts() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        default = torch.cuda.current_stream()
        assert default == torch.cuda.default_stream()
        assert default.cuda_stream == 0
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() == side
            assert torch.accelerator.current_stream() == side
        with side:
            assert torch.cuda.current_stream() == side
        assert torch.cuda.current_stream() == default
        other = torch.cuda.Stream(device=1)
        with torch.cuda.stream(other):
            assert torch.cuda.current_device() == 1
            assert torch.cuda.current_stream() == other
        assert torch.cuda.current_device() == 0
        torch.cuda.set_stream(side)
        assert torch.cuda.current_stream() == side
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == side


def test_priorities_are_clamped_as_torch_does() -> None:
    with peakline.virtual_gpu("h200"):
        least, greatest = torch.cuda.Stream.priority_range()
        assert torch.cuda.Stream(priority=-100).priority == greatest
        assert torch.cuda.Stream(priority=100).priority == least


def test_a_stream_keeps_its_own_cache() -> None:
    with peakline.virtual_gpu("h200"):
        side = torch.cuda.Stream()
        x = torch.empty(2**25, dtype=torch.uint8, device="cuda")
        del x
        with torch.cuda.stream(side):
            y = torch.empty(2**25, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_reserved() == 2**26
        del y


def test_a_block_used_on_another_stream_waits_for_it() -> None:
    with peakline.virtual_gpu("h200"):
        side = torch.cuda.Stream()
        x = torch.empty(2**25, dtype=torch.uint8, device="cuda")
        x.record_stream(side)
        del x
        assert torch.cuda.memory_stats()["active_bytes.all.current"] == 2**25
        torch.cuda.synchronize()
        y = torch.empty(2**25, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_reserved() == 2**25
        del y


def test_events_are_done_at_once_and_tell_the_hosts_time() -> None:
    with peakline.virtual_gpu("h200"):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with pytest.raises(ValueError, match="recorded"):
            start.elapsed_time(end)
        start.record()
        end.record(torch.cuda.Stream())
        end.synchronize()
        assert start.query()
        assert end.query()
        assert start.elapsed_time(end) >= 0
        with pytest.raises(ValueError, match="enable_timing"):
            start.elapsed_time(torch.cuda.Event())


def test_streams_wait_for_each_other_and_for_events() -> None:
    with peakline.virtual_gpu("h200"):
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        event = side.record_event()
        main.wait_event(event)
        event.wait()
        event.wait(side)
        side.synchronize()
        assert side.query()
        assert not side.is_capturing()
        generic = torch.Event("cuda")
        generic.record()
        main.wait_event(generic)


def test_an_external_stream_is_wrapped() -> None:
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.ExternalStream(12345).cuda_stream == 12345
        assert torch.cuda.get_stream_from_external(12345).cuda_stream == 12345


def test_sharing_an_event_between_processes_is_refused() -> None:
    with peakline.virtual_gpu("h200"), pytest.raises(RuntimeError, match="other processes"):
        torch.cuda.Event(interprocess=True).ipc_handle()
