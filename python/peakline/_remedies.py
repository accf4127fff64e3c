"""What would have let a script that ran out of memory pass: a smaller batch, and checkpointing.

Each is said only after the script has run so, on a virtual GPU with the same memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from peakline import _C
from peakline._fit.variables import with_values
from peakline._plan.document import Activations, Plan
from peakline._plan.names import compress
from peakline._plan.units import units_of
from peakline._script_sizes import Size
from peakline.run import format_size

_HALVINGS = 8
_AT_THE_END = 0.2  # seconds: a trial that was ended


@dataclass
class Change:
    """What a trial does otherwise than the script did."""

    words: list[str] = field(default_factory=list)  # behind the script's own
    plan: dict[str, Any] | None = None


# The answer of an estimate with the change, in so many seconds at most; None when there is none.
Try = Callable[[Change, float], dict[str, Any] | None]


class LayersMet:
    """The layers of the largest model that a program runs."""

    def __init__(self) -> None:
        self._model = ""
        self._layers: list[str] = []
        self._size = 0

    def met(self, model: nn.Module) -> None:
        held = getattr(model, "module", None)  # by DDP
        inner = held if isinstance(held, nn.Module) else model
        size = sum(parameter.numel() for parameter in inner.parameters())
        if size > self._size:
            self._size, self._model = size, type(inner).__name__.removeprefix("FSDP")
            self._layers = list(units_of(inner))

    def checkpointed(self) -> Plan | None:
        if not self._layers:
            return None
        return Plan(self._model, (Activations(tuple(self._layers), "recompute"),))


def announcement(batch: Size | None, plan: Plan | None, seconds: float) -> str:
    tried = [f"a smaller {batch.option}"] if batch is not None else []
    tried += ["checkpointing"] if plan is not None else []
    return f"trying {' and '.join(tried)}, for {seconds:g} s at most; --advice 0 does not"


def proven(attempt: Try, batch: Size | None, plan: Plan | None, seconds: float) -> list[str]:
    """Sentences. What fails is not said; that the time was too short is."""
    until = time.monotonic() + seconds

    def tried(change: Change) -> dict[str, Any] | None:
        left = until - time.monotonic()
        answer = attempt(change, left) if left > 0 else None
        return answer if answer is not None and _passes(answer) else None

    said = [*_smaller_batch(tried, batch, until), *_checkpointing(tried, plan)]
    if seconds > 0 and until - time.monotonic() < _AT_THE_END and (batch or plan):
        said.append(
            f"{seconds:g} s were too short to try everything; --advice {4 * seconds:g} takes "
            "longer."
        )
    return said


def _passes(answer: dict[str, Any]) -> bool:
    return bool(answer["fits"] and answer.get("gpu_fits", True) and not answer["partial"])


Tried = Callable[[Change], dict[str, Any] | None]


def _smaller_batch(tried: Tried, batch: Size | None, until: float) -> Iterator[str]:
    """The first of its halves, quarters, … that passes."""
    value = 0 if batch is None else batch.value
    for _ in range(_HALVINGS):
        value //= 2
        if batch is None or value < 1 or time.monotonic() > until:
            return
        answer = tried(Change(with_values(batch.words, {batch.name: value})))
        if answer is not None:
            yield (
                f"{batch.option} {value} instead of {batch.value} fits: it reserves "
                f"{format_size(answer['peak_reserved'])}; `peakline fit` finds the largest."
            )
            return


def _checkpointing(tried: Tried, plan: Plan | None) -> Iterator[str]:
    if plan is None:
        return
    answer = tried(Change(plan=plan.to_json()))
    if answer is not None:
        layers = plan.activations[0].modules
        named = ", ".join(compress(layers))
        yield (
            f"Checkpointing {_C.counted(len(layers), 'layer')} of {plan.model} ({named}) fits: it "
            f"reserves {format_size(answer['peak_reserved'])}; `peakline plan` finds how few are "
            "enough, and what to write."
        )
