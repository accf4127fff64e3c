"""`peakline.plan`: what to change so that training fits a GPU, and what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peakline import _C, _checks
from peakline._fit.variables import Variable
from peakline._plan import document
from peakline._plan.document import Plan

_NONE_FITS = 3


@dataclass(frozen=True)
class Planned:
    """What was found. `plan` goes to `peakline.checkpoint`; None when nothing fits."""

    plan: Plan | None
    fits: bool
    peak_reserved: int  # of the plan, or of the smallest one when none fits
    step_ms: float
    throughput: float
    plans: list[dict[str, Any]] = field(repr=False)  # all that were estimated, as in the JSON
    floor: int = 0  # the least that any of them reserves
    short_by: int = 0  # bytes that are missing
    cannot: list[dict[str, Any]] = field(default_factory=list, repr=False)
    # When nothing fits: the script's batch or length, and what would fit with less of it.
    smaller: dict[str, Any] | None = field(default=None, repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan, for `peakline estimate --plan` and `peakline.checkpoint`."""
        if self.plan is None:
            raise ValueError(f"no plan fits: {_C.format_size(self.short_by)} are missing")
        document.write(self.plan, path)

    def __str__(self) -> str:
        size = _C.format_size(self.peak_reserved)
        if self.plan is None:
            return f"nothing fits: {_C.format_size(self.short_by)} short of {size}"
        changes = "; ".join(self.plan.changes()) or "as it is"
        return f"{changes}: {size} reserved, {self.step_ms:.1f} ms a step"


def plan(
    train: Callable[..., Any] | str | os.PathLike[str],
    memory: int | str | None = None,
    *,
    vary: Mapping[str, Sequence[int]] | None = None,
    args: Sequence[str] = (),
    gpu: str | os.PathLike[str] = "h200",
    levers: Sequence[str] | None = None,
    margin: float = 0.0,
    jobs: int | None = None,
) -> Planned:
    """The fastest change that brings `train` under `memory` on `gpu`.

    `train` is the path of a script, which gets `args`, or a function that builds model and
    optimizer and trains three steps; it is called once for each plan, on a virtual GPU of its own.
    `vary` names arguments that may be changed, too: {"batch": range(1, 65)} or {"batch": [8, 16]}.
    `levers`: change these alone. `margin=0.05` keeps 5% free. `jobs` is for scripts.
    """
    _checks.share(margin, "margin")
    limit = _checks.size(memory, "plan(memory=…)")
    _checks.path(gpu, "plan(gpu=…)", "the name of a GPU, or a path")
    if vary is not None:
        _checks.numbers_by_name(vary, "plan(vary=…)", "a dict such as {'batch': [8, 16]}")
    if levers is not None:
        _checks.words(levers, "plan(levers=…)", "a list such as ['activations']")
    if callable(train):
        return _of_function(train, limit, vary or {}, gpu, levers, margin)
    if jobs is not None:
        _checks.whole(jobs, "plan(jobs=…)", 1)
    _checks.words(args, "plan(args=…)", "a list of words such as ['--lr', '1e-4']")
    script = _checks.path(train, "plan(train)", "a function, or the path of a script")
    words = [script, "--gpu", os.fspath(gpu), "--margin", f"{100 * margin}%"]
    words += [] if limit is None else ["--memory", str(limit)]
    words += [] if levers is None else ["--levers", ",".join(levers)]
    words += [] if jobs is None else ["--jobs", str(jobs)]
    for name, values in (vary or {}).items():
        words += ["--vary", str(_variable(name, values))]
    return _of_script([*words, "--json", "-", "--", *args])


def _variable(name: str, values: Sequence[int]) -> Variable:
    whole = isinstance(values, range) and values.step == 1 and values
    return Variable(name, values if whole else sorted(values))


def _of_script(words: list[str]) -> Planned:
    command = [sys.executable, "-m", "peakline._plan_script", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, _NONE_FITS):
        said = [line for line in done.stderr.splitlines() if line.startswith("peakline: ")]
        raise ValueError((said or [done.stderr.strip()])[-1].removeprefix("peakline: "))
    answer = json.loads(done.stdout)
    chosen = None if answer["chosen"] is None else answer["plans"][answer["chosen"]]
    return _planned(answer, chosen)


def _planned(answer: dict[str, Any], chosen: dict[str, Any] | None) -> Planned:
    plans = answer["plans"]
    shown = chosen or min(plans, key=lambda one: int(one["peak_reserved"]))
    return Planned(
        None if chosen is None else document.parse(chosen["plan"]),
        chosen is not None,
        shown["peak_reserved"],
        shown["step_ms"],
        shown["throughput"],
        plans,
        answer["floor"],
        answer["short_by"],
        answer["cannot"],
        answer["smaller"],
    )


def _of_function(
    train: Callable[..., Any],
    memory: int | None,
    vary: Mapping[str, Sequence[int]],
    gpu: str | os.PathLike[str],
    levers: Sequence[str] | None,
    margin: float,
) -> Planned:
    from peakline._fit.tries import usual_memory
    from peakline._plan import smaller
    from peakline._plan.answer import plans_of, row_of
    from peakline._plan.arguments import known_levers, usual_levers
    from peakline._plan.in_process import FunctionTries
    from peakline._plan.search import Search
    from peakline._script_sizes import in_order

    for name in levers or ():
        if name not in known_levers():
            raise ValueError(f"there is no lever '{name}'; known: {', '.join(known_levers())}")
    budget = int((usual_memory(os.fspath(gpu)) if memory is None else memory) * (1 - margin))
    tries = FunctionTries(train, gpu)
    variables = [_variable(name, values) for name, values in vary.items()]
    outcome = Search(tries, variables, levers or usual_levers()).run(budget)
    answer = plans_of(outcome, None, budget, tries.dropped)
    answer["smaller"] = None
    sizes = [one for one in in_order(outcome.sizes) if one.name not in vary]
    if outcome.chosen is None and sizes:
        made = smaller.first_that_fits(sizes, outcome, lambda size: tries.ask, budget)
        answer["smaller"] = smaller.as_json(made, lambda one: row_of(one, None, budget))
    chosen = None if answer["chosen"] is None else answer["plans"][answer["chosen"]]
    return _planned(answer, chosen)
