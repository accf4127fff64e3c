"""One thing that can be changed about a training program without touching its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peakline._plan.facts import Facts
    from peakline._plan.stage import Stage


@dataclass(frozen=True)
class Lever:
    key: str  # its place in a plan: "optimizer.implementation"
    takes: str  # its values, in words
    check: Callable[[Any], bool]  # whether a value of a plan is one
    changes: Callable[[Any], str]  # what a value changes, in a few words for a table
    paste: Callable[[Any], list[str]]  # lines of code or configuration that do the same
    apply: Callable[[Any, Stage], None]  # to a program that is about to run
    tries: Callable[[Facts], Sequence[Any]]  # values that are worth an estimate
    # peakline.checkpoint does it, when it is given the optimizer; `paste` is then a remark.
    applied_by_checkpoint: bool = False
    keeps_numbers: bool = True  # training computes the same, up to the order of sums
    beside_activations: bool = True  # worth a try together with checkpointing


def one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda given: any(
        given is value or (given == value and type(given) is type(value)) for value in values
    )
