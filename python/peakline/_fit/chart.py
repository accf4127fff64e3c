"""The curve of `peakline estimate … --curve` as a picture: SVG, which every browser shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from peakline.run import format_size

_WIDE, _HIGH = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 190, 24, 52
_COLOURS = ("#2563a8", "#c2571a", "#3a8f4d", "#8a4fa3", "#a33a4f", "#5c6670", "#9a7d0a", "#167d7f")
_TICKS = 5
_STYLE = "font: 12px sans-serif; background: white"

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    name: str
    points: list[Point]  # value, bytes
    dashes: str = ""  # as SVG writes them


def svg(names: Sequence[str], curve: Sequence[dict[str, Any]], limit: int | None) -> str:
    """`names`: what varies. The one with most values goes along the axis, the other makes lines."""
    along, *others = sorted(names, key=lambda name: -len({row[name] for row in curve}))
    lines = list(_lines(along, others, curve))
    plot = _Plot(lines, limit)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}" style="{_STYLE}">',
        *plot.axes(along),
        *plot.curves(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _lines(along: str, others: Sequence[str], curve: Sequence[dict[str, Any]]) -> Iterable[Line]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in curve:
        groups.setdefault(", ".join(f"{name} {row[name]}" for name in others), []).append(row)
    for name, rows in groups.items():
        rows.sort(key=lambda row: row[along])
        for what, dashes, peak in _KINDS:
            points = [(float(row[along]), float(peak(row))) for row in rows if peak(row)]
            if points:
                yield Line(f"{name} {what}".strip(), points, dashes)


def _phase(phase: str) -> Any:
    return lambda row: (row.get(phase) or {}).get("peak_reserved", 0)


# What is drawn of each row: prefill and decoding apart where something was generated.
_KINDS = (
    ("reserved", "", lambda row: row["peak_reserved"]),
    ("prefill", "6 3", _phase("prefill")),
    ("decoding", "2 3", _phase("decode")),
)


class _Plot:
    def __init__(self, lines: list[Line], limit: int | None) -> None:
        self._lines = lines
        values = [x for line in lines for x, _ in line.points]
        self._values = sorted(set(values))
        # Values that double are as far from each other as they are many times each other.
        self._log = values and min(values) > 0 and max(values) >= 8 * min(values)
        highest = max(y for line in lines for _, y in line.points)
        self._limit = limit if limit and limit <= 4 * highest else None
        self._top = 1.05 * max(highest, self._limit or 0)

    def _x(self, value: float) -> float:
        low, high, here = self._values[0], self._values[-1], value
        if self._log:
            low, high, here = math.log(low), math.log(high), math.log(here)
        share = (here - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (_WIDE - _LEFT - _RIGHT)

    def _y(self, size: float) -> float:
        return _HIGH - _BOTTOM - size / self._top * (_HIGH - _TOP - _BOTTOM)

    def axes(self, along: str) -> Iterable[str]:
        floor, right = self._y(0), _WIDE - _RIGHT
        for tick in range(_TICKS + 1):
            size = self._top * tick / _TICKS
            y = self._y(size)
            yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
            yield _text(_LEFT - 6, y + 4, format_size(round(size)), "end")
        for value in self._shown_values():
            yield _text(self._x(value), floor + 18, f"{value:,.0f}", "middle")
        yield _text((_LEFT + right) / 2, _HIGH - 12, along, "middle")
        if self._limit:
            y = self._y(self._limit)
            yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#b00020" stroke-width="1.5"/>'
            yield _text(right + 8, y + 4, f"limit {format_size(self._limit)}", "start", "#b00020")

    def _shown_values(self) -> list[float]:
        step = -(-len(self._values) // 8)
        return self._values[::step]

    def curves(self) -> Iterable[str]:
        colours: dict[str, str] = {}
        for number, line in enumerate(self._lines):
            group = line.name.rpartition(" ")[0]
            colour = colours.setdefault(group, _COLOURS[len(colours) % len(_COLOURS)])
            places = [(self._x(x), self._y(y)) for x, y in line.points]
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            dashes = f' stroke-dasharray="{line.dashes}"' if line.dashes else ""
            yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
            for (x, y), (value, size) in zip(places, line.points, strict=True):
                said = escape(f"{line.name}, {value:,.0f}: {format_size(round(size))}")
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}">'
                yield f"<title>{said}</title></circle>"
            yield from self._legend(number, line, colour, dashes)

    def _legend(self, number: int, line: Line, colour: str, dashes: str) -> Iterable[str]:
        x, y = _WIDE - _RIGHT + 10, _HIGH - _BOTTOM - 16 * (len(self._lines) - 1 - number)
        yield f'<path d="M{x} {y}h22" stroke="{colour}" stroke-width="2"{dashes}/>'
        yield _text(x + 28, y + 4, line.name, "start")


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#333") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {where}>{escape(words)}</text>"
