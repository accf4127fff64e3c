"""Prefill and decoding apart: what `generate` of transformers needs in each."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from peakline import _C
from peakline._imports import acting_on
from peakline._patches import Patches
from peakline.run import format_size

_UTILS = "transformers.generation.utils"


class Generation:
    """Prefill ends with the model's first forward: the encoder's run is part of it."""

    def __init__(self) -> None:
        self._peaks: dict[str, dict[str, int]] = {}
        self._patches = Patches()
        self._depth = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        try:
            with acting_on({_UTILS: self._patch}):
                yield
        finally:
            self._patches.restore()

    def complete(self, answer: dict[str, Any]) -> None:
        """Adds what was seen: `prefill` and `decode`, null where nothing was generated."""
        for phase in ("prefill", "decode"):
            answer[phase] = self._peaks.get(phase)

    def _patch(self, module: ModuleType) -> None:
        mixin: Any = getattr(module, "GenerationMixin", None)
        if mixin is not None:
            self._patches.set(mixin, "generate", self._generating(mixin.generate))

    def _generating(self, generate: Any) -> Any:
        @functools.wraps(generate)
        def generating(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth or not isinstance(model, torch.nn.Module):
                return generate(model, *args, **kwargs)  # an assistant's, inside the model's own
            self._depth += 1
            _take()
            handle = model.register_forward_hook(self._first_forward)
            try:
                return generate(model, *args, **kwargs)
            finally:
                self._depth -= 1
                handle.remove()
                self._note("decode" if self._seen_prefill else "prefill")
                self._seen_prefill = False

        return generating

    _seen_prefill = False

    def _first_forward(self, module: Any, args: Any, result: Any) -> None:
        if not self._seen_prefill:
            self._seen_prefill = True
            self._note("prefill")

    def _note(self, phase: str) -> None:
        allocated, reserved = _take()
        known = self._peaks.setdefault(phase, {"peak_allocated": 0, "peak_reserved": 0})
        known["peak_allocated"] = max(known["peak_allocated"], allocated)
        known["peak_reserved"] = max(known["peak_reserved"], reserved)


def _take() -> tuple[int, int]:
    now = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    return _C.vgpu.take_high_water(torch.cuda.current_device(), *now)


def line(answer: dict[str, Any]) -> str:
    """For under the table; empty when nothing was generated."""
    prefill, decode = answer.get("prefill"), answer.get("decode")
    if not prefill:
        return ""
    text = f"Generation: prefill {format_size(prefill['peak_allocated'])} at its peak"
    if decode:
        text += f", decoding {format_size(decode['peak_allocated'])}"
    return text + "\n"
