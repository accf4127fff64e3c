"""`peakline.simulate`: what a run would reserve under other settings or with less memory."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from peakline import _C, _checks
from peakline._html import preformatted
from peakline.run import Run


@dataclass(frozen=True)
class Outcome:
    """One setting of the allocator, tried on a run."""

    conf: str
    fits: bool
    peak_reserved: int  # up to the failure, if it failed
    peak_allocated: int
    at_peak: dict[str, int]  # reserved = requested + rounding + waiting + cached
    segments: int  # taken from the driver
    device_frees: int
    retries: int
    ooms: int


@dataclass(frozen=True)
class Simulation(Outcome):
    """What the simulated allocator did with a run."""

    device: str
    memory_limit: int | None
    settings_from: str  # "given", "recording" or "default"
    memory_stats: dict[str, int]  # under the names of torch.cuda.memory_stats()
    oom: dict[str, Any] | None  # the first failure: torch's message, what was alive, what was lost
    settings: list[Outcome]  # other settings, best first
    warnings: list[str]
    text: str = field(repr=False)  # what `peakline simulate` prints

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return preformatted(self.text)


def simulate(
    run: Run | str | os.PathLike[str],
    conf: str | None = None,
    memory: int | str | None = None,
    device: str = "",
    compare: bool = False,
    empty_cache: bool = False,
) -> Simulation:
    """Replays a run through the simulated CUDA caching allocator.

    `run` may also be the path of a recording, an allocator CSV or a torch memory snapshot. `conf`
    is written as in PYTORCH_CUDA_ALLOC_CONF; `memory` ("24GiB" or bytes) caps reserved bytes.
    Without them the settings and the limit of the run itself hold, where the recording keeps them;
    `conf=""` means torch's defaults. `compare` tries the sensible settings too. `empty_cache`: as
    if the program called torch.cuda.empty_cache() after each of its steps.
    """
    name = (
        run._name
        if isinstance(run, Run)
        else _checks.path(run, "simulate(run)", "a run, or a path")
    )
    if conf is not None:
        _checks.of_kind(conf, str, "simulate(conf=…)", 'text such as "expandable_segments:True"')
    spool = run.spool() if isinstance(run, Run) else _C.Spool.open_existing(name)
    limit = _checks.size(memory, "simulate(memory=…)")
    _checks.of_kind(device, str, "simulate(device=…)", 'text such as "cuda:0"')
    _checks.flag(compare, "simulate(compare=…)")
    _checks.flag(empty_cache, "simulate(empty_cache=…)")
    answer, text = _C.simulate(spool, name, conf, limit, device, compare, empty_cache)
    found = json.loads(answer)
    return Simulation(
        **_outcome(found),
        device=found["device"],
        memory_limit=found["memory_limit"],
        settings_from=found["settings_from"],
        memory_stats=found["memory_stats"],
        oom=found["oom"],
        settings=[Outcome(**_outcome(row)) for row in found["settings"]],
        warnings=found["warnings"],
        text=text.rstrip("\n"),
    )


def _outcome(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in Outcome.__dataclass_fields__}
