"""Finds kinds of events that nobody hands to the recording: such a kind has no business there.

python tools/check_event_kinds.py [ROOT]
"""

import re
import sys
from pathlib import Path

KINDS = "capture/raw_event.h"
# Where events pass through, and so are named without being made.
PASSED_THROUGH = ("raw_event", "assembler", "step_tape")


def without_producer(root: Path) -> list[str]:
    enum = re.search(r"enum class RawKind[^{]*{(.*?)};", (root / KINDS).read_text(), re.S)
    kinds = re.findall(r"^\s*(k\w+)", enum.group(1) if enum else "", re.M)
    sources = [
        path.read_text()
        for folder in ("capture", "vgpu")
        for path in sorted((root / folder).rglob("*.[ch]*"))
        if path.stem not in PASSED_THROUGH
    ]
    named = set(re.findall(r"RawKind::(k\w+)", "\n".join(sources)))
    return [f"{KINDS}: nobody makes events of kind {kind}" for kind in kinds if kind not in named]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = without_producer(root)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
