"""MemoryTracker's statistics on disk: upstream's pickle, and JSON."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from typing import IO, Any

from peakline import _new_file

Levels = dict[int, tuple[str, float]]

LEVEL_KEYS = ("memories_allocated", "memories_active", "memories_reserved")
_JSON_FORMAT = "peakline.memory_tracker"
_ALLOWED = {("collections", "defaultdict"): defaultdict, ("builtins", "int"): int}


class BadStatsFile(ValueError):
    """The file holds no memory statistics, or more than that."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain data. A pickle can name any function to call; all but two are refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise BadStatsFile(
                f"the pickle asks for {module}.{name}, which memory statistics never hold; "
                "it was not loaded"
            )
        return _ALLOWED[module, name]


def _levels(stats: dict[str, Any], key: str) -> Levels:
    rows = stats[key]
    if isinstance(rows, list):
        rows = dict(enumerate(rows))
    levels: Levels = defaultdict()
    for index, (name, size) in rows.items():
        if not isinstance(index, int) or not isinstance(name, str):
            raise TypeError(key)
        levels[index] = (name, float(size))
    return levels


def _checked(stats: Any) -> dict[str, Any]:
    result: dict[str, Any] = {key: _levels(stats, key) for key in LEVEL_KEYS}
    markers = {str(name): int(place) for name, place in stats["markers"].items()}
    result["markers"] = defaultdict(int, markers)
    result["num_alloc_retries"] = int(stats["num_alloc_retries"])
    return result


def _read_json(file: IO[bytes]) -> Any:
    stats = json.load(file)
    if not isinstance(stats, dict) or stats.get("format") != _JSON_FORMAT:
        raise TypeError("not this format")
    return stats


def read_stats(path: str) -> dict[str, Any]:
    """The statistics in `path`, JSON or pickle, checked. Raises BadStatsFile."""
    with open(path, "rb") as file:
        is_json = file.read(1) == b"{"
        file.seek(0)
        try:
            return _checked(_read_json(file) if is_json else _PlainUnpickler(file).load())
        except BadStatsFile:
            raise
        except Exception as error:
            raise BadStatsFile(
                f"{path} holds no memory statistics that MemoryTracker wrote ({error!r})"
            ) from error


def write_stats(path: str, stats: dict[str, Any]) -> None:
    """As JSON where `path` ends in .json, else as the pickle that upstream's `load` reads."""
    if path.endswith(".json"):
        rows = {key: [list(row) for row in stats[key].values()] for key in LEVEL_KEYS}
        found = {"format": _JSON_FORMAT, "version": 1, **stats, **rows}
        _new_file.write_text(path, json.dumps(found))
        return
    _new_file.write_bytes(path, pickle.dumps(stats, pickle.HIGHEST_PROTOCOL))
