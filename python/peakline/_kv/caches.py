"""What a model keeps of each token, seen as transformers' caches grow."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from peakline._imports import acting_on
from peakline._patches import Patches


@dataclass
class Layer:
    """One layer's cache, at its largest."""

    bytes: int = 0
    tokens: int = 0  # of all sequences
    window: int | None = None  # the most of a sequence that it keeps

    @property
    def per_token(self) -> float:
        return self.bytes / self.tokens if self.tokens else 0.0


class Caches:
    def __init__(self) -> None:
        self.layers: dict[int, Layer] = {}
        self._patches = Patches()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        try:
            with acting_on({"transformers.cache_utils": self._patch}):
                yield
        finally:
            self._patches.restore()

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers.values())

    def _patch(self, module: ModuleType) -> None:
        cache: Any = getattr(module, "Cache", None)
        if cache is not None:
            self._patches.set(cache, "update", self._updating(cache.update))

    def _updating(self, update: Any) -> Any:
        @functools.wraps(update)
        def updating(cache: Any, key: Any, value: Any, layer: int, *args: Any, **kw: Any) -> Any:
            result = update(cache, key, value, layer, *args, **kw)
            self._note(layer, cache.layers[layer])
            return result

        return updating

    def _note(self, number: int, kept: Any) -> None:
        keys, values = getattr(kept, "keys", None), getattr(kept, "values", None)
        if keys is None or values is None:
            return
        size = keys.nbytes + values.nbytes
        known = self.layers.setdefault(number, Layer())
        if size >= known.bytes:
            known.bytes = size
            known.tokens = keys.shape[0] * keys.shape[-2]
            is_sliding = getattr(kept, "is_sliding", False)
            known.window = getattr(kept, "max_cache_len", None) if is_sliding else None
            known.window = getattr(kept, "sliding_window", known.window) if is_sliding else None
