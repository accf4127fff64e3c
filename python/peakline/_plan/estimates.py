"""One estimate of a script under a plan, wherever it runs: here in a fork, or on a cluster."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from typing import Any

from peakline import _script_sizes
from peakline._fit import warm

# What a search asks of an estimate; the rest is large, and asked of the chosen plan alone.
_KEPT = (
    *("schema_version", "device", "gpu", "torch", "peak_allocated", "peak_reserved", "host_peak"),
    *("segments", "retries", "ooms", "by_category", "step_ms", "gpu_busy_ms", "host_ms"),
    *("bound_by", "tokens_per_s", "samples_per_s", "confidence", "partial", "fits", "nccl_memory"),
    *(
        "host_pinned_peak",
        "host_fits",
        "timed_by",
        "steps_completed",
        "guessed_time_ms",
        "allocator_conf",
    ),
)


@dataclass(frozen=True)
class Task:
    words: list[str]  # the command line of `estimate`
    plan: str = ""  # as JSON; "" is none
    probe: bool = False  # look closely at one step
    whole: bool = False  # the whole answer is wanted

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Result:
    status: int = 1
    answer: dict[str, Any] | None = None
    output: str = ""  # what the script and peakline said
    files: list[str] = field(default_factory=list)  # sources of the script
    imported: list[str] = field(default_factory=list)
    lost: bool = False  # nobody knows: a process or a machine went away

    @property
    def reason(self) -> str:
        """Why there is no answer, in one line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        said = [line.removeprefix("peakline: ") for line in lines if line.startswith("peakline: ")]
        refused = [line for line in said if line.startswith("the plan cannot be applied: ")]
        if refused:
            return refused[-1].removeprefix("the plan cannot be applied: ")
        return (lines or ["it ended without a word"])[-1 if not said else _last_error(lines)]


def _last_error(lines: list[str]) -> int:
    """The exception that Python showed, where there is one."""
    for place in reversed(range(len(lines))):
        if not lines[place].startswith("peakline: ") and "Error" in lines[place]:
            return place
    return -1


def make(task: Task) -> tuple[int, dict[str, Any] | None]:
    """In a process of its own: the exit status, and the answer."""
    from peakline._estimate import arguments, neighbours
    from peakline._estimate.answer import finish
    from peakline._estimate_script import estimate

    with tempfile.TemporaryDirectory(prefix="peakline-plan-") as folder:
        words = list(task.words)
        if task.plan:
            path = os.path.join(folder, "plan.json")
            with open(path, "w") as file:
                file.write(task.plan)
            place = words.index("--") if "--" in words else len(words)
            words[place:place] = ["--plan", path]
        args = arguments.parse(words)
        if task.probe:
            from peakline._plan.probe import Probe

            args.probe = Probe()
        status, answer = estimate(args, neighbours.Neighbours(words))
    if answer is None:
        return status, None
    if not task.whole:
        answer = {key: answer[key] for key in _KEPT if key in answer}
    finish(answer)
    answer["files"] = warm.local_files()
    if task.probe:
        found = args.probe.found()
        found.facts.sizes += _script_sizes.of_globals(sys.modules["__main__"])
        found.pcie_gbps = pcie_gbps(args.gpu)
        answer["probe"] = found.to_json()
    return status, json.loads(json.dumps(answer))


def pcie_gbps(gpu: str) -> float:
    """How fast copies between the GPU and the host are, as its profile says."""
    import tomllib

    from peakline import _C

    def find(table: Any) -> float:
        if not isinstance(table, dict):
            return 0.0
        if isinstance(table.get("pcie_gbps"), (int, float)):
            return float(table["pcie_gbps"])
        return max((find(inner) for inner in table.values()), default=0.0)

    try:
        return find(tomllib.loads(_C.cost.Profile(gpu).to_toml()))
    except (ValueError, OSError):
        return 0.0


def result_of(outcome: warm.Outcome) -> Result:
    answer = outcome.answer
    files = answer.pop("files", []) if answer is not None else []
    return Result(outcome.status, answer, outcome.output, files, outcome.imported)
