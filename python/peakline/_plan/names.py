"""Names of modules in a plan: as `named_modules()` has them, and `layers.{0..15}` for many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from peakline._plan.errors import PlanError

_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MOST = 100_000
# What libraries put around modules; people did not write them.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def expand(written: str) -> list[str]:
    """`layers.{0..2}` is layers.0, layers.1, layers.2."""
    ranges = _RANGE.findall(written)
    if not _NAME.fullmatch(_RANGE.sub("0", written)) or len(ranges) > 1:
        raise PlanError(f"'{written[:80]}' names no module; write layers.0 or layers.{{0..15}}")
    if not ranges:
        return [written]
    first, last = (int(number[:9]) for number in ranges[0])
    if last < first or last - first > _MOST:
        raise PlanError(f"'{written[:80]}' goes from {first} to {last}, which is no range")
    before, after = _RANGE.split(written)[0], _RANGE.split(written)[-1]
    return [f"{before}{number}{after}" for number in range(first, last + 1)]


def compress(names: Iterable[str]) -> list[str]:
    """The shortest way to write them, in their order: the reverse of `expand`."""
    written: list[str] = []
    run: list[tuple[str, int, str]] = []

    def flush() -> None:
        if len(run) > 1:
            before, first, after = run[0]
            written.append(f"{before}{{{first}..{run[-1][1]}}}{after}")
        elif run:
            before, first, after = run[0]
            written.append(f"{before}{first}{after}")
        run.clear()

    for name in names:
        parts = _last_number(name)
        if parts is None:
            flush()
            written.append(name)
            continue
        follows = run and (run[-1][0], run[-1][1] + 1, run[-1][2]) == parts
        if not follows:
            flush()
        run.append(parts)
    flush()
    return written


def _last_number(name: str) -> tuple[str, int, str] | None:
    words = name.split(".")
    for place in reversed(range(len(words))):
        if words[place].isdigit() and str(int(words[place])) == words[place]:
            before = ".".join([*words[:place], ""]) if place else ""
            after = ".".join(["", *words[place + 1 :]]) if place + 1 < len(words) else ""
            return before, int(words[place]), after
    return None


def as_written(path: str) -> str:
    """The name without what torch.compile, FSDP and checkpoint wrappers add to it."""
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def closest(name: str, known: Sequence[str]) -> str:
    """A name that may have been meant, for an error; "" where there is none."""
    import difflib

    found = difflib.get_close_matches(name, known, 1)
    return found[0] if found else ""
