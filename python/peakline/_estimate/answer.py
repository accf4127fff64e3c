"""The answer as one object: what `--json` writes and the table shows."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from peakline import _C
from peakline._estimate.outcome import Outcome
from peakline._oom_facts import freed_cache
from peakline._stacks import own_place
from peakline._steps import Steps
from peakline.run import Run, format_size
from peakline.simulate import simulate

_NO_STEPS = "no optimizer made a step, so this is the memory of whatever the script did"
_GUESSED = (
    "no optimizer of torch's made a step; a step was taken to be whatever changes parameters "
    "between two backwards, and --step-on names another"
)
_SURVIVED = "memory ran out {times}, and the script went on by itself"


# Of an answer that is still being made: not for who asked.
_PRIVATE = ("made", "chose_batch", "remedies")


def finish(answer: dict[str, Any]) -> None:
    for key in _PRIVATE:
        answer.pop(key, None)


def build(
    run: Run, outcome: Outcome, steps: Steps, allocated_since: bool, notes: list[str]
) -> dict[str, Any]:
    """`notes`: sentences about what was done otherwise than on a real GPU."""
    answer: dict[str, Any] = json.loads(run.to_json())
    answer["partial"] = bool(outcome.partial)
    answer["steps_by"] = steps.maker
    answer["needed_reserved"] = None
    answer["peak_reserved"] = answer["peak_reserved"] or 0  # the first allocation failed
    if answer["fits"] is not None:
        answer["fits"] = outcome.fits(answer["ooms"], allocated_since)
    warnings = [*answer["warnings"], *notes]
    if steps.done == 0 and not answer["ooms"]:
        warnings.append(_NO_STEPS)
    if steps.guessed:
        warnings.append(_GUESSED)
    if answer["ooms"] and answer["fits"]:
        times = "once" if answer["ooms"] == 1 else _C.counted(answer["ooms"], "time")
        warnings.append(_SURVIVED.format(times=times))
    if outcome.partial:
        warnings.insert(0, outcome.partial)
    answer["warnings"] = list(dict.fromkeys(warnings))
    answer["oom"] = _oom(run, answer, outcome)
    return answer


def _oom(run: Run, answer: dict[str, Any], outcome: Outcome) -> dict[str, Any] | None:
    """The first failure: what torch said, what was alive, what was lost, what would help."""
    if not answer["ooms"] and outcome.out_of_memory is None:
        return None
    limit = answer["memory_limit"]
    device = answer["device"]
    report = simulate(run, memory=limit, device=device, compare=True)
    found = report.oom or {}
    # The recording has the stack of the last failure.
    failure = answer.get("failure") if answer["ooms"] == 1 else None
    return {
        "message": outcome.out_of_memory or found.get("message", ""),
        "where": _where(found) + _asked_by(failure),
        "by_category": found.get("by_category", {}),
        "by_module": found.get("by_module", {}),
        "by_line": _by_line(failure),
        "fragmentation": _fragmentation(found),
        "advice": _advice([row.conf for row in report.settings if row.fits]),
        "would_help": freed_cache(run, limit, device),
    }


def _where(oom: dict[str, Any]) -> str:
    if not oom:
        return ""
    parts = [f"step {oom['step']}", oom["module"] or "outside modules", oom["op"]]
    return "It failed in " + ", ".join(part for part in parts if part) + "."


def _asked_by(failure: dict[str, Any] | None) -> str:
    if failure is None:
        return ""
    caller, forward = own_place(failure["stack"]), own_place(failure["forward"])
    if forward is not None and caller is not None:
        return f" The backward of {_place(forward)} asked for it, called by {_place(caller)}."
    return "" if caller is None else f" {_place(caller)} asked for it."


def _place(place: dict[str, Any]) -> str:
    text = f" ({place['text']})" if place["text"] else ""
    return f"{place['file']}:{place['line']}{text}"


def _by_line(failure: dict[str, Any] | None) -> dict[str, int]:
    """What lines held then, the largest first; what their backward holds counts for them."""
    held: Counter[str] = Counter()
    for row in failure["lines"] if failure else []:
        held[f"{row['file']}:{row['line']}"] += row["at_peak"]
    return dict(held.most_common())


def _fragmentation(oom: dict[str, Any]) -> str:
    if not oom:
        return ""
    cached = format_size(oom["at_failure"]["cached"])
    largest = format_size(oom["largest_free_block"])
    text = f"{cached} lay free inside segments, the largest piece {largest}"
    if oom["only_fragmented"]:
        text += ": enough in sum, but in no one piece"
    return text + "."


def _advice(settings: list[str]) -> str:
    if not settings:
        return "No other setting of PYTORCH_CUDA_ALLOC_CONF would let this allocation pass."
    if not settings[0]:
        return "Without the settings of PYTORCH_CUDA_ALLOC_CONF this allocation would pass."
    return f"PYTORCH_CUDA_ALLOC_CONF={settings[0]} would let this allocation pass."
