"""What is known of the moment memory ran out, and what would have helped."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass, field
from typing import Any

import torch

from peakline._holders import Holder, find_holders
from peakline.run import GrowthUse, Run, format_size
from peakline.simulate import Simulation, simulate
from peakline.track import running

_HOLDERS = 10


@dataclass(frozen=True)
class Segment:
    """One piece of the device's memory that the allocator has, in pieces of its own."""

    size: int
    blocks: list[tuple[int, bool]]  # size, in use


@dataclass(frozen=True)
class OomFacts:
    message: str
    device: str
    failure: dict[str, Any]  # as in the JSON of `peakline show`
    limit: int | None
    segments: list[Segment]
    largest_free: int
    holders: list[Holder]
    advice: list[str]
    growth: list[dict[str, Any]] = field(default_factory=list)


def gather(run: Run, error: BaseException) -> OomFacts:
    """While the tensors still live. Raises ValueError when the recording saw no failure."""
    for tracker in running():  # the advice is about what is set now
        tracker.note_settings()
    answers = json.loads(run.to_json())
    failed = [one for one in [answers, *answers["devices"]] if one.get("failure")]
    if not failed:
        raise ValueError("no allocation failed while it was tracked, so there is none to explain")
    found = failed[0]
    # First, while the recording is as it was when memory ran out.
    growth = [_as_json(row) for row in run._growth_at(found["device"], error)]
    garbage = collect_garbage(run)
    segments = _segments(found["device"])
    limit = _least(found["memory_limit"], _limit(found["device"]))
    settings = advice(simulate(run, memory=limit, device=found["device"], compare=True))
    free = [size for segment in segments for size, in_use in segment.blocks if not in_use]
    return OomFacts(
        message=str(error),
        device=found["device"],
        failure=found["failure"],
        limit=limit,
        segments=segments,
        largest_free=max(free, default=0),
        holders=find_holders(_HOLDERS, torch.device(found["device"]), error),
        advice=garbage_sentences(garbage) + settings + freed_cache(run, limit, found["device"]),
        growth=growth,
    )


def _as_json(row: GrowthUse) -> dict[str, Any]:
    return vars(row) | {"place": row.place and vars(row.place)}


def collect_garbage(run: Run) -> int:
    """Collects what only cycles of references keep alive, and says how much memory that was."""
    try:
        before = run.live().allocated
    except ValueError:  # nothing was allocated at all
        return 0
    gc.collect()
    return before - run.live().allocated


def garbage_sentences(garbage: int) -> list[str]:
    if garbage <= 0:
        return []
    return [
        f"{format_size(garbage)} were garbage that only cycles of references kept alive: "
        "gc.collect() freed them when it had failed."
    ]


def freed_cache(run: Run, limit: int | None, device: str) -> list[str]:
    """What goes wrong now may come of how earlier steps have cut their memory up."""
    if not simulate(run, memory=limit, device=device, empty_cache=True).fits:
        return []
    return ["torch.cuda.empty_cache() after each step lets this allocation pass."]


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(device: str) -> int | None:
    """What the allocator could have had, with what else is on the device."""
    if not device.startswith("cuda"):
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return int(torch.cuda.memory_reserved(device)) + int(free)


def _segments(device: str) -> list[Segment]:
    if not device.startswith("cuda"):
        return []
    index = torch.device(device).index or 0
    return [
        Segment(
            one["total_size"],
            [(block["size"], block["state"] != "inactive") for block in one["blocks"]],
        )
        for one in torch.cuda.memory_snapshot()
        if one["device"] == index
    ]


def advice(report: Simulation) -> list[str]:
    """Settings under which the recorded run passes, as the simulated allocator finds. The settings
    that are on already are not among those tried."""
    out = []
    for row in report.settings:
        if not row.fits or row.conf == report.conf:
            continue
        if row.conf:
            out.append(f"PYTORCH_CUDA_ALLOC_CONF={row.conf} lets this allocation pass.")
        else:
            out.append("Without the settings of PYTORCH_CUDA_ALLOC_CONF this allocation passes.")
    return out
