"""Lines over operator calls, as SVG that needs nothing to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 320, 80, 36, 28
_COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c")
_MOST_POINTS = 1600


def _thinned(values: Sequence[float]) -> list[tuple[int, float]]:
    """Few enough points to draw, with the lowest and the highest of each stretch kept."""
    if len(values) <= _MOST_POINTS:
        return list(enumerate(values))
    stretch = -(-2 * len(values) // _MOST_POINTS)
    points = []
    for start in range(0, len(values), stretch):
        places = range(start, min(start + stretch, len(values)))
        ends = {min(places, key=values.__getitem__), max(places, key=values.__getitem__)}
        points += [(place, values[place]) for place in sorted(ends)]
    return points


def chart(
    title: str, lines: Mapping[str, Sequence[float]], markers: Mapping[str, int], unit: str = "MB"
) -> str:
    """One chart as an <svg> element: a line for each name, an upright for each marker."""
    count = max((len(values) for values in lines.values()), default=0)
    every = [value for values in lines.values() for value in values]
    low, high = (min(every), max(every)) if every else (0.0, 1.0)
    low, high = (low * 0.999, high * 1.001) if high > low else (low - 0.5, high + 0.5)
    plot_width, plot_height = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - _TOP

    def x_of(place: float) -> float:
        return _LEFT + plot_width * place / max(count - 1, 1)

    def y_of(value: float) -> float:
        return _TOP + plot_height * (high - value) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    for step in range(5):
        value = low + (high - low) * step / 4
        y = y_of(value)
        parts.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - 10}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.2f} {unit}</text>'
        )
    for index, (name, values) in enumerate(lines.items()):
        color = _COLORS[index % len(_COLORS)]
        points = " ".join(f"{x_of(i):.1f},{y_of(v):.1f}" for i, v in _thinned(values))
        parts.append(
            f'<polyline fill="none" stroke="{color}" stroke-width="1.3" points="{points}"/>'
            f'<text x="{_WIDTH - 10 - 170 * index}" y="16" text-anchor="end" fill="{color}">'
            f"{escape(name)}</text>"
        )
    for name, place in markers.items():
        color = "#d62728" if name == "fw_bw_boundary" else "#000"
        x = x_of(place)
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" '
            f'stroke="{color}" stroke-width="1.5"/>'
            f'<text x="{x + 3:.1f}" y="{_TOP + 10}" fill="{color}">{escape(name)}</text>'
        )
    parts.append(
        f'<text x="{_LEFT + plot_width / 2:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">'
        f"operator calls (0 to {max(count - 1, 0):,})</text></svg>"
    )
    return "\n".join(parts)


def page(title: str, charts: Sequence[str]) -> str:
    """A page of charts, whole in itself."""
    body = "\n".join(f"<p>{svg}</p>" for svg in charts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title></head>\n<body>\n{body}\n</body></html>\n"
    )
