"""What ran on each stream in a step, small enough to be kept in a recording and drawn."""

from __future__ import annotations

import json
from typing import Any

# (device, stream, engine, what bounds it, start, end), in microseconds, as the clock has them.
Span = tuple[int, int, str, str, float, float]
MOST = 3000  # drawn; neighbours that no screen tells apart become one
KINDS = ("compute", "memory", "latency", "copy", "network")


def kind_of(span: Span) -> int:
    engine, bound = span[2], span[3]
    if engine == "network":
        return KINDS.index("network")
    return KINDS.index(bound) if engine == "kernel" else KINDS.index("copy")


def as_json(spans: list[Span], begin_us: float, end_us: float) -> str:
    """The stretch from `begin_us` to `end_us`: [start, length, kind] by stream, in microseconds."""
    inside = [span for span in spans if span[4] < end_us and span[5] > begin_us]
    closest = (end_us - begin_us) / MOST if len(inside) > MOST else 0.0
    lanes: dict[tuple[int, str], list[list[float]]] = {}
    for span in sorted(inside, key=lambda span: span[4]):
        start, end = max(span[4], begin_us) - begin_us, min(span[5], end_us) - begin_us
        lane = lanes.setdefault((span[0], _name(span)), [])
        _append(lane, start, end, kind_of(span), closest)
    answer: dict[str, Any] = {"us": round(end_us - begin_us, 1), "kinds": KINDS}
    answer["streams"] = [
        {
            "device": device,
            "name": name,
            "spans": [[round(s, 1), round(e - s, 1), k] for s, e, k in lane],
        }
        for (device, name), lane in lanes.items()
    ]
    return json.dumps(answer, separators=(",", ":"))


def _append(lane: list[list[float]], start: float, end: float, kind: int, closest: float) -> None:
    if lane and lane[-1][2] == kind and start - lane[-1][1] < closest:
        lane[-1][1] = max(lane[-1][1], end)
    else:
        lane.append([start, end, kind])


def _name(span: Span) -> str:
    """NCCL has a stream of its own; copies are told apart from kernels of the same stream."""
    if span[2] == "network":
        return "collectives"
    place = "default stream" if span[1] == 0 else f"stream {span[1]}"
    return place if span[2] == "kernel" else f"{place}, {span[2]}"
