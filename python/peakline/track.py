"""`peakline.track`: exact memory tracking of a real run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import Optimizer

from peakline import _C, _cuda_baseline
from peakline._compiled_code import watch_compiled_code
from peakline._ending import SO_FAR
from peakline._module_names import ModuleNames
from peakline._patches import Patches
from peakline._steps import FirstOptimizer, GuessedSteps, Steps
from peakline._torch_patches import (
    OptimizerWatch,
    watch_after_tracing,
    watch_backward,
    watch_classes,
    watch_fake_tensors,
    watch_optimizers,
    watch_resizes,
)
from peakline.run import Run

T = TypeVar("T")
Models = nn.Module | Iterable[nn.Module] | None
Optimizers = Optimizer | Iterable[Optimizer] | None


# From start to stop: who finds something about the run tells them.
_RUNNING: list[Tracker] = []


def current_run() -> Run | None:
    """The run that is being tracked in this process, or is on a virtual GPU."""
    return _RUNNING[-1].run if _RUNNING else None


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
    ) -> None:
        self._virtual = virtual
        self._steps = steps or Steps()
        self._models = models
        self._optimizers = optimizers
        self._ops = ops
        self._path = "" if path is None else os.fspath(path)
        self._info = info or {}
        self._patches = Patches()
        self._session: _C.Session | None = None
        self._fake_cuda = False
        self.run: Run | None = None  # from start() on

    def start(self) -> Run:
        cuda = not self._virtual and _cuda_baseline.is_present()
        info = {"torch": torch.__version__, "peakline": _C.version, "producer": "track"}
        info.update(self._info)
        names = ModuleNames()
        spool = _C.Spool.open(self._path)
        trace = cuda and _cuda_baseline.has_trace()
        # A virtual GPU's allocations are not compared with those of the step before.
        repeats = not self._virtual
        session = _C.Session(
            spool, nn.Module, names.discover, self._ops, cuda, trace, repeats, info
        )
        names.bind(session)
        self._steps.bind(session)
        self._first = FirstOptimizer(self._steps, self._optimizers)
        self._guess = GuessedSteps(self._steps, self._first, names.roots)
        try:
            self._write_baseline(session, names, cuda)
            session.watch()
            self._patch(session, names, cuda)
        except BaseException:
            self._patches.restore()
            session.stop()
            raise
        finally:
            # Held no longer: what the program deletes must go away.
            self._models, self._optimizers = [], []
        self._session = session
        _RUNNING.append(self)
        self.run = Run(spool, self._sync)
        self.run._steps = self._steps
        return self.run

    def _write_baseline(self, session: _C.Session, names: ModuleNames, cuda: bool) -> None:
        if cuda:
            _cuda_baseline.write(session)
        for model in self._models:
            names.add_root(model)
        session.adopt_all()
        self._adopt_fakes(session)
        self._watch = OptimizerWatch(session, names, self._first)
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
        names.watch(self._patches)
        watch_backward(self._patches, session, self._guess)
        watch_optimizers(self._patches, self._watch)
        watch_classes(self._patches, session)
        watch_after_tracing(self._patches, session)
        watch_resizes(self._patches)
        watch_compiled_code(self._patches, session, names)
        if not self._virtual:  # whose memory has nothing to do with what torch imagines
            watch_fake_tensors(self._patches, self._note_fake)
        if cuda:
            _cuda_baseline.when_started(session)

    def _note_fake(self, tensor: FakeTensor) -> None:
        if self._session is not None:
            self._fake_cuda |= tensor.fake_device.type == "cuda"
            self._session.fake_tensor(tensor, tensor.fake_device)

    def _sync(self) -> bool:
        if self._session is None:
            return False
        self._session.sync()
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

    @property
    def repeating(self) -> bool:
        """Whether steps repeat at present, so that their ops need not be watched."""
        return self._session is not None and self._session.repeating

    def note(self, key: str, value: str) -> None:
        """A fact about the run, beside those from its start."""
        if self._session is not None:
            self._session.info(key, value)

    def ended_early(self, why: str) -> None:
        """More would have run, but for `why`: what the recording answers holds so far."""
        self.note("partial", why)

    def stop(self) -> None:
        """torch is as it was before start(); the recording is complete."""
        session, self._session = self._session, None
        if session is None:
            return
        _RUNNING.remove(self)
        if self.run is not None:
            self.run._steps = None
        self._patches.restore()
        if session.recording:  # not in a forked child
            session.label_alive()  # what the last step replaced after its backward
            if not self._fake_cuda and not self._virtual:
                _cuda_baseline.check_totals(session)
                _cuda_baseline.write_settings(session)
        session.stop()


class track:
    """Tracks the block's memory to the byte; gives a `Run`.

    `model`, `optimizer`: one or several. Their parameters, gradients and state are known by name
    from the start; without them they are found when they are first used, and totals, ops and phases
    come all the same. `ops=False` leaves out op names, for the last bit of speed.
    """

    def __init__(
        self, model: Models = None, optimizer: Optimizers = None, ops: bool = True
    ) -> None:
        self._tracker = Tracker(
            _as_list(model, nn.Module, "model"),
            _as_list(optimizer, Optimizer, "optimizer"),
            ops,
            info={"command": " ".join(sys.argv)},
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
