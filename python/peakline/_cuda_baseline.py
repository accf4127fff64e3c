"""What CUDA's caching allocator holds before a recording begins, and what it counts at its end."""

from __future__ import annotations

from typing import Any

import torch

from peakline import _C, _allocator_settings

_cuda: Any = torch.cuda  # torch gives most of these functions no types


def is_present() -> bool:
    """There is a CUDA device. Does not start CUDA."""
    return torch.version.cuda is not None and torch.cuda.device_count() > 0


def has_trace() -> bool:
    """The allocator is torch's caching allocator; other ones only report what they count."""
    return is_present() and bool(_cuda.get_allocator_backend() == "native")


def write(session: _C.Session) -> None:
    """Every segment and every live block of a CUDA that is already running."""
    if not _cuda.is_initialized():
        return
    if not has_trace():
        for device in range(torch.cuda.device_count()):
            if (size := torch.cuda.memory_allocated(device)) > 0:
                session.foreign(device, size)
        return
    for segment in _cuda.memory_snapshot():
        device, stream = segment["device"], segment["stream"]
        session.segment(device, segment["address"], segment["total_size"], stream)
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                requested = block.get("requested_size", block["size"])
                session.block(device, address, block["size"], requested, stream)
            address += block["size"]


def check_totals(session: _C.Session) -> None:
    """Compares the recording with what the allocator itself counts."""
    if not _cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        if torch.cuda.max_memory_allocated(device) > 0:
            session.total(device, torch.cuda.memory_allocated(device))


def write_settings(session: _C.Session) -> None:
    """How the allocator was set, and what of each device was not its own."""
    if not _cuda.is_initialized() or not has_trace():
        return
    facts = _allocator_settings.facts(_allocator_settings.in_use(), _allocator_settings.release())
    for device in range(torch.cuda.device_count()):
        if torch.cuda.max_memory_allocated(device) > 0:
            facts |= _limits(device)
    for key, value in facts.items():
        session.info(key, value)


def _limits(device: int) -> dict[str, str]:
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # a failed kernel leaves a device that answers nothing
        return {}
    outside = max(0, total - free - torch.cuda.memory_reserved(device))
    found = {f"outside_allocator.cuda:{device}": str(outside)}
    fraction = _cuda.get_per_process_memory_fraction(device)
    if fraction < 1.0:
        found[f"allocator_limit.cuda:{device}"] = str(int(fraction * total))
    return found


def when_started(session: _C.Session) -> None:
    """Tells `session` once CUDA runs, which may be long after tracking began."""

    def started() -> None:
        if session.recording:
            session.cuda_started()

    _cuda._lazy_call(started)
