"""A plan that was estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peakline._plan.document import WORLD_SIZE, Plan
from peakline.run import format_size

_PAGE = 20 * 2**20  # by which segments for large blocks grow


@dataclass(frozen=True)
class Tried:
    plan: Plan
    answer: dict[str, Any]
    at_least: int = 0  # bytes that it needs, as a trial under a limit has shown

    @property
    def reserved(self) -> int:
        """What it reserves where nothing limits it: the allocator never has to give back."""
        return int(self.answer["peak_reserved"])

    @property
    def needs(self) -> int:
        """The limit under which it is sure to fit. Segments that grow do so by whole pages, and
        torch asks for room before it knows how much of one is there already."""
        more = _PAGE if "expandable_segments:True" in self._settings else 0
        return max(self.reserved + more, self.at_least)

    @property
    def _settings(self) -> str:
        return str(self.answer.get("allocator_conf") or "")

    @property
    def allocated(self) -> int:
        return int(self.answer["peak_allocated"])

    @property
    def step_ms(self) -> float:
        return float(self.answer.get("step_ms") or 0.0)

    @property
    def host_ms(self) -> float:
        """How long the host issues work for a step."""
        return float(self.answer.get("host_ms") or 0.0)

    @property
    def gpu_busy_ms(self) -> float:
        return float(self.answer.get("gpu_busy_ms") or 0.0)

    @property
    def throughput(self) -> float:
        """Tokens a second where there are any, else samples, else steps."""
        for key in ("tokens_per_s", "samples_per_s"):
            if self.answer.get(key):
                return float(self.answer[key])
        return 1e3 / self.step_ms if self.step_ms else 0.0

    @property
    def unit(self) -> str:
        unit = "samples/s" if self.answer.get("samples_per_s") else "steps/s"
        if self.answer.get("tokens_per_s"):
            unit = "tokens/s"
        # Jobs of several sizes are compared by what each of their GPUs does.
        return f"{unit} per GPU" if WORLD_SIZE in self.plan.arguments else unit

    def line(self) -> str:
        changes = "; ".join(self.plan.changes()) or "as it is"
        return f"{changes}: {format_size(self.reserved)}, {self.step_ms:.1f} ms"
