"""Plain text tables, as the display methods print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"-?[\d.,]+( [A-Za-z%]+)?")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under headers: the first column to the left, numbers to the right."""
    widths = [len(header) for header in headers]
    for row in rows:
        widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
    rule = "  ".join("=" * width for width in widths)

    def line(cells: Sequence[str]) -> str:
        placed = [cells[0].ljust(widths[0])]
        for cell, width in zip(cells[1:], widths[1:], strict=True):
            placed.append(cell.rjust(width) if _NUMBER.fullmatch(cell) else cell.ljust(width))
        return "  ".join(placed).rstrip()

    return "\n".join([rule, line(headers), rule, *map(line, rows), rule])
