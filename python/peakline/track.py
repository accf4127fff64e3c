"""`peakline.track`: exact memory tracking of a real run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from peakline import _C, _checks, _cuda_baseline, _script_variables, _stacks, _torch_places
from peakline._compiled_code import watch_compiled_code
from peakline._ending import SO_FAR
from peakline._faults import Faults
from peakline._growth_holders import GrowthHolders
from peakline._module_names import ModuleNames, OnModel
from peakline._patches import Patches
from peakline._steps import FirstOptimizer, GuessedSteps, Steps
from peakline._torch_patches import (
    OptimizerWatch,
    watch_after_tracing,
    watch_backward,
    watch_classes,
    watch_fake_tensors,
    watch_optimizers,
    watch_ranges,
    watch_resizes,
)
from peakline.run import NotTracked, Run

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensor
else:
    FakeTensor = _torch_places.place("torch._subclasses.fake_tensor:FakeTensor")

T = TypeVar("T")
Models = nn.Module | Iterable[nn.Module] | None
Optimizers = Optimizer | Iterable[Optimizer] | None


# From start to stop: who finds something about the run tells them.
_RUNNING: list[Tracker] = []


_TOLD: set[str] = set()  # what of torch is not as expected


def current_run() -> Run | None:
    """The run that is being tracked in this process, or is on a virtual GPU."""
    return _RUNNING[-1].run if _RUNNING else None


def outermost_module(module: nn.Module) -> nn.Module:
    """The module that `module` is part of, as far as the run that is being tracked has seen."""
    names = _RUNNING[-1].names if _RUNNING else None
    return module if names is None else names.outermost(module)


def running() -> list[Tracker]:
    """Those between start() and stop(), for what happens in all of them."""
    return list(_RUNNING)


def note_in_recordings(key: str, value: str) -> None:
    """A fact for every recording that is being made."""
    for tracker in _RUNNING:
        tracker.note(key, value)


class Tracker:
    """Tracks everything between start() and stop(). `track()` is the usual way to use it."""

    def __init__(
        self,
        models: list[nn.Module],
        optimizers: list[Optimizer],
        ops: bool = True,
        path: str | os.PathLike[str] | None = None,
        info: dict[str, str] | None = None,
        virtual: bool = False,
        steps: Steps | None = None,
        on_model: OnModel | None = None,
        stacks: str = "large",
        source: bool = True,
        max_size: int = 0,
        cpp: bool = False,
    ) -> None:
        _stacks.check(stacks)
        self._stacks = _stacks.session_arguments(stacks, source, cpp)
        self._virtual = virtual
        self.names = ModuleNames(on_model)
        self._max_size = max_size
        self.faults = Faults(strict=virtual)
        self._steps = steps or Steps()
        self._models = models
        self._optimizers = optimizers
        self._ops = ops
        self._path = "" if path is None else os.fspath(path)
        self._info = info or {}
        self._patches = Patches()
        self._session: _C.Session | None = None
        self._fake_cuda = False
        # A virtual GPU's allocator is not torch's own.
        self.write_settings: Callable[[], None] | None = None
        self.run: Run | None = None  # from start() on
        self.growth: GrowthHolders | None = None
        self._variables_noted = False

    def start(self) -> Run:
        names = self.names
        try:
            spool = _C.Spool.open(self._path)
            session = self._open_session(spool, names)
        except (OSError, MemoryError) as error:
            if self._virtual or self._path:  # who names a file wants to know before anything runs
                raise
            self.faults.turn_off(error)
            self.run = NotTracked(self.faults.why)
            return self.run
        self._session = session
        _RUNNING.append(self)
        self.run = Run(spool, self._sync)
        self.run._steps = self._steps
        try:
            self._begin(session, names)
        except BaseException as error:
            if not self._survives(error):
                self.stop()
                raise
            self._patches.restore()
            self.faults.turn_off(error)
        finally:
            # Held no longer: what the program deletes must go away.
            self._models, self._optimizers = [], []
        return self.run

    def _survives(self, error: BaseException) -> bool:
        """Not what the user can mend by asking in another way: that is a sentence to be read."""
        refused = isinstance(error, (RuntimeError, TypeError)) and not isinstance(
            error, (NotImplementedError, RecursionError)
        )
        return isinstance(error, Exception) and not self._virtual and not refused

    def _open_session(self, spool: _C.Spool, names: ModuleNames) -> _C.Session:
        cuda = not self._virtual and _cuda_baseline.is_present()
        info = {"torch": torch.__version__, "peakline": _C.version, "producer": "track"}
        info.update(self._info)
        trace = cuda and _cuda_baseline.has_trace()
        # A virtual GPU's allocations are not compared with those of the step before.
        repeats = not self._virtual
        discover = self.faults.guarded(names.discover)
        return _C.Session(
            spool,
            nn.Module,
            discover,
            self._ops,
            cuda,
            trace,
            repeats,
            self._max_size,
            info,
            *self._stacks,
        )

    def _begin(self, session: _C.Session, names: ModuleNames) -> None:
        cuda = not self._virtual and _cuda_baseline.is_present()
        self.faults.bind(session)
        names.bind(session)
        self._steps.bind(session, self.faults)
        self._watch_growth(session)
        self._steps.on_end(self._note_variables, first=True)
        self._first = FirstOptimizer(self._steps, self._optimizers)
        self._guess = GuessedSteps(self._steps, self._first, names.roots)
        self._write_baseline(session, names, cuda)
        session.watch()
        self._patch(session, names, cuda)

    def _watch_growth(self, session: _C.Session) -> None:
        assert self.run is not None
        self.growth = GrowthHolders(session, self.run._spool, self._sync, self._steps)
        self.run._name_holders = self.growth.name
        self._steps.on_end(self.growth.step_ended, first=True)

    def _note_variables(self) -> None:
        """What the script calls its model and optimizer, for advice that names them."""
        if self._variables_noted:
            return
        self._variables_noted = True
        try:  # objects of the program may raise what they like
            models = _script_variables.models(self.names.roots())
            optimizers = _script_variables.optimizers()
        except Exception:
            return
        for key, said in _script_variables.facts(models, optimizers, self.names.path_of).items():
            self.note(key, said)

    def _write_baseline(self, session: _C.Session, names: ModuleNames, cuda: bool) -> None:
        if cuda:
            _cuda_baseline.write(session)
        for model in self._models:
            names.add_root(model)
        session.adopt_all()
        self._adopt_fakes(session)
        self._watch = OptimizerWatch(session, names, self._first, self.faults)
        for optimizer in self._optimizers:
            self._watch.add_parameters(optimizer)
            session.adopt_state(optimizer.state)
        session.label_alive()
        for optimizer in self._optimizers:
            session.label_state(optimizer.state)

    def _adopt_fakes(self, session: _C.Session) -> None:
        """Fake tensors from before have no allocator that could tell of them."""
        tensors: list[object] = []
        for model in self._models:
            tensors += [*model.parameters(), *model.buffers()]
            tensors += [parameter.grad for parameter in model.parameters()]
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                tensors += state.values()
        for tensor in tensors:
            if isinstance(tensor, FakeTensor):
                self._fake_cuda |= tensor.fake_device.type == "cuda"
                session.fake_tensor(tensor, tensor.fake_device)

    def _patch(self, session: _C.Session, names: ModuleNames, cuda: bool) -> None:
        patches, faults = self._patches, self.faults
        parts: dict[str, Callable[[], None]] = {
            "which module a module belongs to": lambda: names.watch(patches, faults),
            "backward": lambda: watch_backward(patches, session, self._guess, faults),
            "optimizers": lambda: watch_optimizers(patches, self._watch),
            "module classes made while tracking": lambda: watch_classes(patches, session, faults),
            "modules after torch.fx traced": lambda: watch_after_tracing(patches, session, faults),
            "resized storages": lambda: watch_resizes(patches),
            "compiled code": lambda: watch_compiled_code(patches, session, names),
            "ranges of the profiler": lambda: watch_ranges(patches, session, faults),
        }
        if not self._virtual:  # whose memory has nothing to do with what torch imagines
            parts["fake tensors"] = lambda: watch_fake_tensors(patches, self._note_fake, faults)
        if cuda:
            parts["the start of CUDA"] = lambda: _cuda_baseline.when_started(session)
        for part, watch in parts.items():
            self._watch_part(part, watch)

    def _watch_part(self, part: str, watch: Callable[[], None]) -> None:
        """A torch that is not as expected in one place costs what is watched there."""
        if why := _torch_places.why_not_watched(part):
            self._leave_out(part, why)
            return
        try:
            watch()
        except (AttributeError, ImportError, TypeError) as error:
            self._leave_out(part, str(error))

    def _leave_out(self, part: str, why: str) -> None:
        """Tells it once: a program may be tracked a thousand times."""
        sentence = (
            f"peakline does not watch {part}: torch {torch.__version__} is not as expected ({why})"
        )
        if self._virtual:
            raise RuntimeError(sentence)
        if sentence not in _TOLD:
            _TOLD.add(sentence)
            self.faults.tell(sentence)

    def _note_fake(self, tensor: FakeTensor) -> None:
        if self._session is not None:
            self._fake_cuda |= tensor.fake_device.type == "cuda"
            self._session.fake_tensor(tensor, tensor.fake_device)

    def _sync(self) -> bool:
        if self._session is None:
            return False
        self._session.sync()
        self.faults.check()
        return True

    def label_alive(self) -> None:
        """Names what is alive now: parameters, gradients, … of modules that have been met."""
        if self._session is not None:
            self._session.label_alive()

    def label_comm(self, tensor: torch.Tensor) -> None:
        """This is memory that ranks exchange, and stays so while it lives."""
        if self._session is not None and not self._session.knows_tensor(tensor):
            self._session.add_tensor(tensor, _C.CATEGORY_COMM, 0, "")
            self._session.label_added()

    def region_begin(self, name: str) -> None:
        """The calling thread is in a part of the program that is called so."""
        if self._session is not None:
            with self.faults:
                self._session.region_begin(name)

    def region_end(self) -> None:
        if self._session is not None:
            with self.faults:
                self._session.region_end()

    @property
    def repeating(self) -> bool:
        """Whether steps repeat at present, so that their ops need not be watched."""
        return self._session is not None and self._session.repeating

    def note(self, key: str, value: str) -> None:
        """A fact about the run, beside those from its start."""
        if self._session is not None:
            self._session.info(key, value)

    def note_settings(self) -> None:
        """How the allocator is set by now, and its limits: for answers before the end."""
        session = self._session
        if session is None or not session.recording:
            return
        if self.write_settings is not None:
            self.write_settings()
        elif not self._fake_cuda and not self._virtual:
            _cuda_baseline.write_settings(session)

    def ended_early(self, why: str) -> None:
        """More would have run, but for `why`: what the recording answers holds so far."""
        self.note("partial", why)

    def stop(self) -> None:
        """torch is as it was before start(); the recording is complete."""
        if self._session is None:
            return
        with self.faults:
            self.note_settings()
        session, self._session = self._session, None
        _RUNNING.remove(self)
        if self.run is not None:
            self.run._steps = None
            self.run._name_holders = None
        with self.faults:
            self._patches.restore()
        with self.faults:
            self._write_ending(session)
        with self.faults:
            session.stop()
        self.faults.check()

    def _write_ending(self, session: _C.Session) -> None:
        if not session.recording:  # in a forked child, or after a fault
            return
        session.label_alive()  # what the last step replaced after its backward
        if not self._fake_cuda and not self._virtual:
            _cuda_baseline.check_totals(session)


class track:
    """Tracks the block's memory to the byte; gives a `Run`.

    `model`, `optimizer`: one or several. Their parameters, gradients and state are known by name
    from the start; without them they are found when they are first used, and totals, ops and phases
    come all the same. `ops=False` leaves out op names, for the last bit of speed. `stacks` says
    which allocations are kept with the lines that asked for them: "large" ones (1 MiB and more),
    "all" or none ("off"); with `cpp` the functions of C++ that a line called stand below it.
    `max_size` bounds the recording, in bytes or as text ("200MB"): when half of it is used, only
    the peaks are kept whole, and the rest is summed up (docs/reliability.md).

    Whatever goes wrong with the tracking itself turns it off, with one warning, and the program
    goes on.
    """

    def __init__(
        self,
        model: Models = None,
        optimizer: Optimizers = None,
        ops: bool = True,
        stacks: str = "large",
        max_size: int | str | None = None,
        cpp: bool = False,
    ) -> None:
        self._tracker = Tracker(
            _as_list(model, nn.Module, "model"),
            _as_list(optimizer, Optimizer, "optimizer"),
            _checks.flag(ops, "track(ops=…)"),
            info={"command": " ".join(sys.argv)},
            stacks=stacks,
            max_size=largest_size(max_size),
            cpp=_checks.flag(cpp, "track(cpp=…)"),
        )

    def __enter__(self) -> Run:
        return self.start()

    def start(self) -> Run:
        """As entering the block, for notebooks: what follows is tracked until stop()."""
        return self._tracker.start()

    def stop(self) -> None:
        """torch is as it was before, and the run complete. May be called again."""
        self._tracker.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._tracker.ended_early(block_failed(error))
        self.stop()


_SMALLEST = 1 << 20


def largest_size(given: int | str | None) -> int:
    """`max_size` in bytes; 0 for none. Raises ValueError."""
    if given is None:
        return 0
    size = _checks.size(given, "max_size=…")
    if size is None or size < _SMALLEST:
        raise ValueError(f"a recording of {given} holds too little; give at least 1MiB")
    return size


def block_failed(error: BaseException) -> str:
    return f"the block ended with {type(error).__name__}{SO_FAR}"


def _as_list(given: T | Iterable[T] | None, kind: type[T], name: str) -> list[T]:
    if given is None:
        return []
    if isinstance(given, kind):
        return [given]
    items = list(given) if isinstance(given, Iterable) else [given]
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(
                f"track({name}=…) takes a {kind.__module__}.{kind.__qualname__} or several of "
                f"them, and got a {type(item).__name__}"
            )
    return items
