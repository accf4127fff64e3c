"""A module's trade-off as a picture: discarded memory against recomputed time."""

from __future__ import annotations

import html
import json

from peakline._dropin.sac_stats import SACTradeOffStats

_WIDTH, _HEIGHT, _LEFT, _TOP = 520, 320, 56, 44


def as_json(curves: dict[str, SACTradeOffStats]) -> str:
    """The curves of all modules, for a report: what docs/trace-format.md says of `tradeoffs`."""
    found = {
        name: {
            "memory": stats.sac_memory,
            "ms": round(stats.sac_runtime, 6),
            "points": [[round(a, 4), round(b, 4)] for a, b in stats.tradeoff_curve.items()],
            "pieces": [
                [round(at, 4), round(slope, 4), round(intercept, 4)]
                for at, slope, intercept in zip(
                    stats.fit_breaks, stats.slopes, stats.intercepts, strict=False
                )
            ],
        }
        for name, stats in curves.items()
    }
    return json.dumps(found, separators=(",", ":"))


def svg(title: str, stats: SACTradeOffStats) -> str:
    """Dots are the ops in their order, lines the pieces that were fitted to them."""

    def x(share: float) -> float:
        return _LEFT + min(max(share, 0.0), 1.02) * (_WIDTH - 2 * _LEFT)

    def y(share: float) -> float:
        return _HEIGHT - _TOP - min(max(share, 0.0), 1.02) * (_HEIGHT - 2 * _TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{html.escape(title)}</text>',
        f'<text x="{_LEFT}" y="36" fill="#555">{stats.sac_memory:,} B, '
        f"{stats.sac_runtime:.4f} ms</text>",
        f'<path d="M{x(0):.1f} {y(1):.1f}V{y(0):.1f}H{x(1):.1f}" fill="none" stroke="#888"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        parts.append(
            f'<text x="{x(share):.1f}" y="{y(0) + 16:.1f}" text-anchor="middle">{share:.0%}</text>'
            f'<text x="{_LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    for i, (slope, intercept) in enumerate(zip(stats.slopes, stats.intercepts, strict=True)):
        start, end = stats.fit_breaks[i], stats.fit_breaks[i + 1]
        parts.append(
            f'<path d="M{x(start):.1f} {y(slope * start + intercept):.1f}'
            f'L{x(end):.1f} {y(slope * end + intercept):.1f}" stroke="#1668b8" stroke-width="2"/>'
        )
    parts += [
        f'<circle cx="{x(share):.1f}" cy="{y(cost):.1f}" r="3" fill="#d9480f"/>'
        for share, cost in stats.tradeoff_curve.items()
    ]
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">discarded memory</text>'
        f'<text x="14" y="{_HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {_HEIGHT / 2})">recomputed time</text></svg>'
    )
    return "\n".join(parts)
