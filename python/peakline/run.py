"""What a recording answers: `track()` and `load()` give a Run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from peakline import _C, _checks, _html
from peakline._holders import Holder, find_holders
from peakline._live import Live, LiveReader
from peakline._steps import Steps
from peakline._timing import Timing

format_size = _C.format_size
# A device, what grows there, whether all are asked for again, and the error that ended functions.
_NameHolders = Callable[[str, list[dict[str, Any]], bool, BaseException | None], None]

_NOTHING_YET = "nothing was allocated in this run yet, so there is nothing to say"


@dataclass(frozen=True)
class Peak:
    """The moment a device held most: how much, when, where, and what it was."""

    device: str
    bytes: int
    step: int  # 1 is the first
    phase: str  # "forward", "recompute", "backward", "optimizer"
    op: str
    module: str
    by_category: dict[str, int]  # sums to `bytes`
    by_module: dict[str, int]  # by path; each with the modules below it
    reserved: int | None  # the highest over the run; None when it is not known


@dataclass(frozen=True)
class Step:
    peak_allocated: int
    peak_reserved: int | None


@dataclass(frozen=True)
class ModuleUse:
    """A module and what is below it, at the device's peak."""

    path: str
    type: str
    depth: int
    peak: int
    own: int  # thereof by the module itself
    by_category: dict[str, int]
    highest_while_running: int  # the device's total, over all calls of the module
    forward_calls: int


@dataclass(frozen=True)
class OpUse:
    name: str
    calls: int  # those that allocated
    allocations: int
    at_peak: int
    allocated: int  # over the whole run
    largest: int


@dataclass(frozen=True)
class CodePlace:
    """A line of the program."""

    file: str
    line: int
    function: str
    text: str  # "" when it is not known

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class LineUse:
    """A line and what it allocated. In backward: the line of the forward call."""

    place: CodePlace
    called_from: CodePlace | None  # in backward: the line that called it
    allocations: int
    at_peak: int
    allocated: int  # over the whole run
    largest: int
    by_category: dict[str, int]  # sums to `at_peak`


@dataclass(frozen=True)
class RegionUse:
    """A part of the program that it gave a name, with what lies inside it."""

    path: str  # "train / eval": the outermost first
    entered: int
    at_peak: int
    highest: int  # the device's total while the program was in it


@dataclass(frozen=True)
class GrowthUse:
    """What keeps more with every step."""

    place: CodePlace | None  # None: op and module say where
    op: str
    module: str
    kept: int  # at the end of the last step, by blocks of earlier ones
    blocks: int
    per_step: int
    first_step: int  # of those that left something; 1 is the first
    last_step: int
    # The variable that keeps them: "main(): losses[…]". "" where none is known.
    holder: str = ""


@dataclass(frozen=True)
class TimelinePoint:
    event: int
    time_ns: int
    lowest: int
    highest: int
    reserved: int
    by_category: dict[str, int]


class Run:
    """A recording and the answers over it. May be asked while the run still goes on."""

    def __init__(
        self, spool: _C.Spool, sync: Callable[[], bool] | None = None, name: str = "this run"
    ) -> None:
        self._spool = spool
        self._name = name
        # Says whether there may be more than at the last question, and makes it readable.
        self._sync = sync
        self._summary: dict[str, Any] | None = None
        self._timing: Callable[[], Timing] | None = None  # of runs on a virtual GPU
        self._steps: Steps | None = None  # while it goes on
        self._live: LiveReader | None = None
        # While it goes on: fills in who holds what grows on a device.
        self._name_holders: _NameHolders | None = None

    def _answers(self) -> dict[str, Any]:
        grows = self._sync is not None and self._sync()
        if self._summary is None or self._sync is not None:
            try:
                self._summary = _C.summarize(self._spool, self._name, advise=not grows)
            except ValueError as error:
                if grows and "no whole chunk" in str(error):  # of a run that has just begun
                    raise ValueError(_NOTHING_YET) from None
                raise
        if not grows:
            self._sync = None  # complete: this answer holds
        return self._summary

    def _device(self, device: str | torch.device | int | None) -> dict[str, Any]:
        devices: list[dict[str, Any]] = self._answers()["devices"]
        if not devices:
            raise ValueError("nothing was allocated in this run, so no device has a peak")
        if device is None:
            return devices[0]
        name = _device_name(device)
        for candidate in devices:
            if candidate["name"] == name:
                return candidate
        known = ", ".join(candidate["name"] for candidate in devices)
        raise ValueError(f"nothing was allocated on '{name}' in this run; ask for one of: {known}")

    @property
    def devices(self) -> list[str]:
        """Devices that held memory, accelerators first."""
        return [device["name"] for device in self._answers()["devices"]]

    @property
    def warnings(self) -> list[str]:
        """What the recording knows to be missing or guessed."""
        return list(self._answers()["warnings"])

    @property
    def info(self) -> dict[str, str]:
        """Facts about the run: the torch version, the command, …"""
        return dict(self._answers()["info"])

    def peak(self, device: str | torch.device | int | None = None) -> Peak:
        """The peak of `device`, by default of the one that the run is about."""
        found = self._device(device)
        return Peak(
            device=found["name"],
            bytes=found["peak_allocated"],
            step=found["peak_step"],
            phase=found["peak_phase"],
            op=found["peak_op"],
            module=found["peak_module"],
            by_category=dict(found["by_category"]),
            by_module={row["path"]: row["peak"] for row in found["modules"]},
            reserved=found["peak_reserved"],
        )

    @property
    def steps(self) -> list[Step]:
        """One per whole step of the optimizer that was seen first."""
        answers = self._answers()
        if not answers["devices"]:
            return []
        rows = answers["devices"][0]["steps"][: answers["steps_completed"]]
        return [Step(**row) for row in rows]

    def modules(
        self, depth: int | None = None, device: str | torch.device | int | None = None
    ) -> list[ModuleUse]:
        """The module tree, depth first, down to `depth` levels below the root."""
        _checks.how_many(depth, "modules(depth=…)")
        rows = [ModuleUse(**row) for row in self._device(device)["modules"]]
        return [row for row in rows if depth is None or row.depth <= depth]

    def top(self, n: int = 10, device: str | torch.device | int | None = None) -> list[OpUse]:
        """The ops that held most at the peak."""
        _checks.rows(n, "top(n=…)")
        return [OpUse(**row) for row in self._device(device)["ops"][:n]]

    def lines(
        self, n: int | None = None, device: str | torch.device | int | None = None
    ) -> list[LineUse]:
        """The lines that held most at the peak, of allocations that were kept with their stacks."""
        _checks.how_many(n, "lines(n=…)")
        rows = self._device(device)["lines"][:n]
        return [
            LineUse(**(row | {key: _place(row[key]) for key in ("place", "called_from")}))
            for row in rows
        ]

    def regions(self, device: str | torch.device | int | None = None) -> list[RegionUse]:
        """The parts of the program that were given a name, in the order of their first use."""
        return [RegionUse(**row) for row in self._device(device)["regions"]]

    def growth(self, device: str | torch.device | int | None = None) -> list[GrowthUse]:
        """What keeps more with every step, up to the last one, and who holds it; the largest first.

        Asked while the run goes on, it looks for the holders then. A run that is over knows those
        that were found after its first steps.
        """
        return self._growth_at(device)

    def _growth_at(
        self, device: str | torch.device | int | None, error: BaseException | None = None
    ) -> list[GrowthUse]:
        """The functions that `error` has just ended count as running."""
        found = self._device(device)
        rows = [dict(row) for row in found["growth"]]
        if self._name_holders is not None:
            self._name_holders(found["name"], rows, True, error)
        return [_growth_use(row) for row in rows]

    def holders(self, n: int = 10, device: str | torch.device | int | None = None) -> list[Holder]:
        """Who keeps the largest tensors alive that are not parameters: the path to each in Python.

        Looks at the process as it is now, so it needs one in which the run was made and still goes
        on. It takes as long as a collection of garbage or two, and costs nothing before.
        """
        _checks.rows(n, "holders(n=…)")
        if self._sync is None or not self._sync():
            raise ValueError(
                "holders() needs the live process: ask inside the track() block or on the virtual "
                "GPU; a recording knows which line allocated a tensor, not who holds it"
            )
        wanted = None if device is None else torch.device(_device_name(device))
        return find_holders(n, wanted)

    def timeline(self, device: str | torch.device | int | None = None) -> list[TimelinePoint]:
        """Allocated and reserved bytes over the run, in at most a few hundred points."""
        return [TimelinePoint(**row) for row in self._device(device)["timeline"]]

    def live(self, device: str | torch.device | int | None = None) -> Live:
        """The memory of `device` up to now, at a low cost: for questions while the run goes on."""
        found = self.live_devices()
        if not found:
            raise ValueError(_NOTHING_YET)
        if device is None:
            return found[0]
        name = _device_name(device)
        for candidate in found:
            if candidate.device == name:
                return candidate
        known = ", ".join(candidate.device for candidate in found)
        raise ValueError(f"nothing was allocated on '{name}' yet; ask for one of: {known}")

    def live_devices(self) -> list[Live]:
        """`live()` of every device that held memory, accelerators first."""
        if self._live is None:
            self._live = LiveReader(self._spool, lambda: self._sync is not None and self._sync())
        return self._live.now()

    def on_step(self, report: Callable[[Run], object], every: int = 1) -> None:
        """Calls `report(run)` after every `every` steps, as long as the run goes on.

        A report that fails is not called again, with a warning: training goes on.
        """
        _checks.function(report, "on_step(report=…)")
        if _checks.whole(every, "on_step(every=…)", -(2**62)) < 1:
            raise ValueError(f"every={every}: say after how many steps, 1 or more")
        if self._steps is None:
            raise ValueError("this run is over, so no step will come")
        steps = self._steps
        failed: list[Exception] = []

        def after_step() -> None:
            if failed or steps.done % every != 0:
                return
            try:
                report(self)
            except Exception as error:  # whatever it is, it must not end the training
                failed.append(error)
                warnings.warn(f"peakline reports no more: {error!r}", stacklevel=2)

        steps.on_end(after_step)

    def timing(self) -> Timing:
        """How long what has run so far takes on the GPU, by the clock of the virtual one."""
        if self._timing is None:
            raise ValueError("only a run on a virtual GPU has a clock, while it is in this process")
        return self._timing()

    def to_json(self) -> str:
        """The same object that `peakline show --json` writes."""
        return str(self._answers()["json"])

    def spool(self) -> _C.Spool:
        """The recording behind this run, with everything that has happened so far."""
        if self._sync is not None:
            self._sync()
        return self._spool

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording to `path`, for `peakline show` and the other commands."""
        self.spool().copy_to(_checks.path(path, "save(path)"))

    def __repr__(self) -> str:
        return str(self)  # what a notebook shows of a cell's last line

    def _repr_html_(self) -> str:
        """What a notebook shows where it can: the timeline above the tables."""
        points = self.timeline() if self._answers()["devices"] else []
        return _html.run_as_html(str(self), points)

    def __str__(self) -> str:
        """What `peakline show` prints."""
        return str(self._answers()["text"]).rstrip("\n")


class NotTracked(Run):
    """The run of a block that could not be tracked: every question says why."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._sync = None
        self._steps = None

    def _refuse(self) -> NoReturn:
        raise ValueError(f"this run was not tracked: {self._why}")

    def _answers(self) -> dict[str, Any]:
        self._refuse()

    def live_devices(self) -> list[Live]:
        self._refuse()

    def timing(self) -> Timing:
        self._refuse()

    def spool(self) -> _C.Spool:
        self._refuse()

    def on_step(self, report: Callable[[Run], object], every: int = 1) -> None:
        """No step will be told of; the program that wants them goes on."""

    def __str__(self) -> str:
        return f"This run was not tracked: {self._why}."

    def _repr_html_(self) -> str:
        return _html.run_as_html(str(self), [])


def load(path: str | os.PathLike[str]) -> Run:
    """Opens a recording (`.peak`)."""
    name = _checks.path(path, "load(path)")
    run = Run(_C.Spool.open_existing(name), name=name)
    run._answers()
    return run


def _growth_use(row: dict[str, Any]) -> GrowthUse:
    wanted = {name: row[name] for name in GrowthUse.__dataclass_fields__}
    return GrowthUse(**(wanted | {"place": _place(row["place"])}))


def _place(found: dict[str, Any] | None) -> CodePlace | None:
    return None if found is None else CodePlace(**found)


def _device_name(device: str | torch.device | int) -> str:
    try:
        asked = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError):
        kind = TypeError if not isinstance(device, (str, int)) else ValueError
        raise kind(
            f"{_checks.shown(device)} is no device; write 'cpu', 'cuda:0' or the number of a GPU"
        ) from None
    if asked.type == "cpu":
        return "cpu"
    return f"{asked.type}:{asked.index or 0}"
