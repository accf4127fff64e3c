"""Runs as notebooks show them: a drawing of the timeline, and the text below it."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Protocol

from peakline import _C

_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 200, 76, 8  # of the drawing, in pixels
# Told apart also by people who see colours otherwise, on light and dark pages.
_COLOURS = {
    "Parameter": "#4477aa",
    "Buffer": "#77aadd",
    "Gradient": "#228833",
    "Activation": "#ccbb44",
    "Temp": "#ee8866",
    "Optstate": "#aa3377",
    "Input": "#66ccee",
    "Workspace": "#bbcc33",
    "Comm": "#ee6677",
    "Other": "#999999",
}


class Point(Protocol):
    @property
    def time_ns(self) -> int: ...
    @property
    def highest(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def by_category(self) -> dict[str, int]: ...


def preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def run_as_html(text: str, points: Sequence[Point]) -> str:
    return timeline_svg(points) + preformatted(text)


def timeline_svg(points: Sequence[Point]) -> str:
    """What was allocated by category, and reserved, over the run; "" with no time to draw."""
    if len(points) < 2:
        return ""
    top = max(max(point.highest, point.reserved) for point in points)
    if top <= 0:
        return ""
    scale = _Scale(points[0].time_ns, points[-1].time_ns, top)
    names = [name for name in points[0].by_category if any(p.by_category[name] for p in points)]
    parts = [_band(points, names, i, scale) for i in range(len(names))]
    parts.append(_line(scale.path(points, lambda p: p.highest), "allocated, highest", ""))
    if any(point.reserved for point in points):
        parts.append(_line(scale.path(points, lambda p: p.reserved), "reserved", "4 3"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + 44}" '
        f'width="{_WIDTH}" font-family="sans-serif" font-size="11" fill="currentColor" role="img">'
        f"<title>memory over the run</title>{''.join(parts)}{_axis(top)}{_legend(names)}</svg>"
    )


class _Scale:
    def __init__(self, begin: int, end: int, top: int) -> None:
        self._begin, self._span, self._top = begin, max(end - begin, 1), top

    def x(self, time: int) -> float:
        return _LEFT + (_WIDTH - _LEFT) * (time - self._begin) / self._span

    def y(self, size: float) -> float:
        return _TOP + (_HEIGHT - _TOP) * (1 - size / self._top)

    def path(self, points: Sequence[Point], value: Callable[[Point], int]) -> str:
        return " ".join(f"{self.x(p.time_ns):.1f},{self.y(value(p)):.1f}" for p in points)


def _band(points: Sequence[Point], names: list[str], index: int, scale: _Scale) -> str:
    def up_to(count: int) -> str:
        return scale.path(points, lambda p: sum(p.by_category[name] for name in names[:count]))

    upper = up_to(index + 1)
    lower = " ".join(reversed(up_to(index).split(" ")))
    name = names[index]
    return (
        f'<polygon points="{upper} {lower}" fill="{_COLOURS.get(name, "#999999")}" '
        f'fill-opacity="0.75"><title>{html.escape(name)}</title></polygon>'
    )


def _line(points: str, title: str, dashes: str) -> str:
    return (
        f'<polyline points="{points}" fill="none" stroke="currentColor" '
        f'stroke-dasharray="{dashes}">'
        f"<title>{title}</title></polyline>"
    )


def _axis(top: int) -> str:
    rows = [(top, _TOP), (top // 2, (_TOP + _HEIGHT) // 2), (0, _HEIGHT)]
    return "".join(
        f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{_C.format_size(size)}</text>'
        for size, y in rows
    )


def _legend(names: list[str]) -> str:
    width = (_WIDTH - _LEFT) // max(len(names), 7)
    return "".join(
        f'<rect x="{_LEFT + i * width}" y="{_HEIGHT + 20}" width="9" height="9" '
        f'fill="{_COLOURS.get(name, "#999999")}"/>'
        f'<text x="{_LEFT + i * width + 13}" y="{_HEIGHT + 29}">{html.escape(name)}</text>'
        for i, name in enumerate(names)
    )
