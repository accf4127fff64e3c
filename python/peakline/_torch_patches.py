"""The few places of torch that tracking replaces while it runs, and puts back afterwards."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd.variable import Variable
from torch.optim.optimizer import Optimizer

from peakline import _C
from peakline._faults import Faults
from peakline._module_names import ModuleNames
from peakline._optimizer_kinds import is_fusable
from peakline._patches import Patches
from peakline._steps import FirstOptimizer, GuessedSteps, is_stepping
from peakline._storage_resizes import follow_resizes
from peakline._torch_places import place

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
else:
    FakeTensor = place("torch._subclasses.fake_tensor:FakeTensor")
    FakeTensorMode = place("torch._subclasses.fake_tensor:FakeTensorMode")
_COMPILING = place("torch._guards:_TLS")


class _WatchedEngine:
    """torch's autograd engine, with the beginning and the end of each backward noted."""

    def __init__(
        self, engine: Any, session: _C.Session, guess: GuessedSteps, faults: Faults
    ) -> None:
        self._engine = engine
        self._session = session
        self._guess = guess
        self._faults = faults
        self._depth = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        session = self._session
        if not session.recording:  # somebody who patched over it keeps it beyond the end
            return self._engine.run_backward(*args, **kwargs)
        with self._faults:
            if self._depth == 0:
                self._guess.backward_begins()
            session.phase(_C.PHASE_BACKWARD, True)
        self._depth += 1
        try:
            return self._engine.run_backward(*args, **kwargs)
        finally:
            self._depth -= 1
            with self._faults:
                session.label_alive_in_step()
                session.phase(_C.PHASE_BACKWARD, False)
                if self._depth == 0:
                    self._guess.backward_ended()
            self._faults.check()


def watch_backward(
    patches: Patches, session: _C.Session, guess: GuessedSteps, faults: Faults
) -> None:
    watched = _WatchedEngine(Variable._execution_engine, session, guess, faults)
    patches.set(Variable, "_execution_engine", watched)


class OptimizerWatch:
    """Notes optimizer steps and labels what they keep."""

    def __init__(
        self, session: _C.Session, names: ModuleNames, first: FirstOptimizer, faults: Faults
    ) -> None:
        self._session = session
        self._names = names
        self._first = first
        self._faults = faults
        self._met: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._running: list[Optimizer] = []
        self._fusable: dict[str, None] = {}  # names of classes

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._faults.why:
            return None
        with self._faults:
            self._begin(optimizer)
            return self._watch_closure(args, kwargs)
        return None

    def _begin(self, optimizer: Optimizer) -> None:
        session = self._session
        self._end_aborted(optimizer)
        if not self._running:
            self._first.begins(optimizer)
        if optimizer not in self._met:
            self._met.add(optimizer)
            self.add_parameters(optimizer)
            self._note_kind(optimizer)
        session.label_alive_in_step()
        session.phase(_C.PHASE_OPTIMIZER, True)
        self._running.append(optimizer)

    def _end_aborted(self, begins: Optimizer) -> None:
        """Steps that an exception ended, of this optimizer or another: nobody told."""
        for own in self._running[::-1]:
            if own is begins or not is_stepping(own):
                self._end_phases(own)

    def _note_kind(self, optimizer: Optimizer) -> None:
        """For advice over the recording: what could be fused."""
        if is_fusable(optimizer):
            self._fusable[type(optimizer).__name__] = None
            self._session.info("fusable_optimizers", ", ".join(self._fusable))

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._faults.check()
        if self._faults.why:
            return
        with self._faults:
            self._session.label_state(optimizer.state)
            self._end_phases(optimizer)
            if not self._running:
                self._first.ended(optimizer)

    def _watch_closure(self, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """A closure runs the model: forward, although an optimizer called it. torch takes changed
        arguments from a hook; the optimizer itself comes first among `args`."""
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._as_forward(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._as_forward(kwargs["closure"])}
        return None

    def _as_forward(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(closure)
        def forward(*args: Any, **kwargs: Any) -> Any:
            with self._faults:
                self._session.phase(_C.PHASE_FORWARD, True)
            try:
                result = closure(*args, **kwargs)
            finally:
                with self._faults:
                    self._session.phase(_C.PHASE_FORWARD, False)
            self._first.evaluated()
            return result

        return forward

    def add_parameters(self, optimizer: Optimizer) -> None:
        """Parameters of modules that have not run yet, and those that belong to none."""
        knows = self._session.knows_tensor
        parameters = [own for group in optimizer.param_groups for own in group["params"]]
        if not all(map(knows, parameters)):
            self._names.meet_owners(own for own in parameters if not knows(own))
        for parameter in parameters:
            if not knows(parameter):
                self._session.add_tensor(parameter, _C.CATEGORY_PARAMETER, 0, "")

    def _end_phases(self, optimizer: Optimizer) -> None:
        while self._running and optimizer in self._running:
            self._running.pop()
            self._session.phase(_C.PHASE_OPTIMIZER, False)

    def close(self) -> None:
        self._first.close()
        while self._running:
            self._running.pop()
            self._session.phase(_C.PHASE_OPTIMIZER, False)


def watch_optimizers(patches: Patches, watch: OptimizerWatch) -> None:
    patches.on_restore(watch.close)
    before = place("torch.optim.optimizer:register_optimizer_step_pre_hook")
    after = place("torch.optim.optimizer:register_optimizer_step_post_hook")
    patches.on_restore(before(watch.before).remove)
    patches.on_restore(after(watch.after).remove)


def watch_classes(patches: Patches, session: _C.Session, faults: Faults) -> None:
    """Module classes that are made while tracking are watched like those from before."""
    own = vars(nn.Module).get("__init_subclass__")  # of another library, if any

    def init_subclass(cls: type[nn.Module], /, **kwargs: Any) -> None:
        if own is not None:
            own.__get__(None, cls)(**kwargs)
        else:
            super(nn.Module, cls).__init_subclass__(**kwargs)
        with faults:
            if session.recording:
                session.watch_type(cls)

    patches.set(nn.Module, "__init_subclass__", classmethod(init_subclass))


def watch_after_tracing(patches: Patches, session: _C.Session, faults: Faults) -> None:
    """torch.fx puts its own `nn.Module.__call__` in place while it traces, as every compilation
    does. When it puts the old one back, Python gives all classes fresh call slots."""
    from torch.fx._symbolic_trace import _Patcher  # of torch's own: it may go with a later version

    revert = _Patcher.revert_all_patches

    def revert_all_patches(patcher: _Patcher) -> Any:
        try:
            return revert(patcher)
        finally:
            with faults:
                if session.recording:
                    session.watch_type(nn.Module)

    patches.set(_Patcher, "revert_all_patches", revert_all_patches)


def watch_resizes(patches: Patches) -> None:
    """Host storages from before are seen from their first resize on."""

    def nothing_more() -> None:
        pass

    patches.on_restore(follow_resizes(lambda storage: nothing_more))


def watch_fake_tensors(
    patches: Patches, note: Callable[[FakeTensor], None], faults: Faults
) -> None:
    """Calls `note` for every FakeTensor that an op of the program gives; not for a compiler's, nor
    for those with which DTensor finds out shapes.

    Only results count: what FakeTensorMode makes on its way to them, no real op would.
    """
    dispatch = FakeTensorMode.__torch_dispatch__
    from_tensor = FakeTensorMode.from_tensor
    running = threading.local()

    def noted_dispatch(self: FakeTensorMode, *args: Any, **kwargs: Any) -> Any:
        if getattr(running, "inside", False) or _is_compiling():
            return dispatch(self, *args, **kwargs)
        running.inside = True
        try:
            result = dispatch(self, *args, **kwargs)
        finally:
            running.inside = False
        with faults:
            if not _is_propagating_shards():
                _note_all(result, note)
        return result

    def noted_from_tensor(self: FakeTensorMode, *args: Any, **kwargs: Any) -> FakeTensor:
        tensor = from_tensor(self, *args, **kwargs)
        with faults:
            if not _is_compiling():
                note(tensor)
        return tensor

    patches.set(FakeTensorMode, "__torch_dispatch__", noted_dispatch)
    patches.set(FakeTensorMode, "from_tensor", noted_from_tensor)


def _is_compiling() -> bool:
    # What CompileContext.try_get() and TracingContext.try_get() read, without their calls.
    state = _COMPILING
    return (
        getattr(state, "compile_context", None) is not None
        or getattr(state, "tracing_context", None) is not None
    )


def _is_propagating_shards() -> bool:
    """DTensor runs an op on fake tensors of global size to learn the shape of its result."""
    module = sys.modules.get("torch.distributed.tensor._sharding_prop")
    if module is None:
        return False
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != module.__file__:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _note_all(result: Any, note: Callable[[FakeTensor], None]) -> None:
    if isinstance(result, FakeTensor):
        note(result)
    elif isinstance(result, (tuple, list)):
        for item in result:
            _note_all(item, note)


def watch_ranges(patches: Patches, session: _C.Session, faults: Faults) -> None:
    """Ranges of NVTX are regions. Those of record_function come from torch's own callbacks."""
    nvtx: Any = torch.cuda.nvtx
    push, pop = nvtx.range_push, nvtx.range_pop

    def range_push(msg: str, *args: Any, **kwargs: Any) -> Any:
        depth = push(msg, *args, **kwargs)  # raises where torch was built without NVTX
        with faults:
            session.region_begin(str(msg))
        return depth

    def range_pop(*args: Any, **kwargs: Any) -> Any:
        with faults:
            session.region_end()
        return pop(*args, **kwargs)

    patches.set(nvtx, "range_push", range_push)
    patches.set(nvtx, "range_pop", range_pop)
