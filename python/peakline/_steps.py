"""What a training step of a run is, who makes them, and who wants to know."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from peakline import _C

_FORSAKEN = (
    16  # steps of another optimizer in a row, after which the first is taken to be done with
)
_PATIENCE = 100  # updates for which an optimizer that has not stepped yet is waited for
_SAMPLED = 8  # parameters of a model that are looked at to see whether anybody changed them


class Steps:
    """The steps of one run: of the optimizer that is seen first, unless `count_only` names them."""

    def __init__(self) -> None:
        self.done = 0
        self.maker = ""  # in words: "AdamW", "__main__.train_step"; "" when nobody made any
        self.guessed = False  # nobody that torch knows made them
        self._only = ""
        self._paused = 0
        self._session: _C.Session | None = None
        # Around what is done inside the program's own calls.
        self._guard: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._listeners: list[Callable[[], None]] = []
        self._evaluations = 0  # of an optimizer's closure, since the last step
        self._evaluation_listeners: list[Callable[[int], None]] = []

    def bind(
        self, session: _C.Session, guard: contextlib.AbstractContextManager[Any] | None = None
    ) -> None:
        self._session = session
        if guard is not None:
            self._guard = guard

    def on_end(self, listener: Callable[[], None], first: bool = False) -> None:
        """Called after every step; may raise. `first`: before the others, one of which may end the
        program."""
        self._listeners.insert(0 if first else len(self._listeners), listener)

    def count_only(self, maker: str) -> None:
        """From now on a step is what `maker` says is one, and an optimizer's is none."""
        self._only = maker

    @contextlib.contextmanager
    def not_counted(self) -> Iterator[None]:
        """What the program does inside is no training: trials of a batch size, for one."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    @property
    def paused(self) -> bool:
        return self._paused > 0

    def end(self, maker: str, guessed: bool = False) -> None:
        """`maker` has completed one."""
        if self._paused or (self._only and maker != self._only):
            return
        with self._guard:
            if self._session is not None:
                self._session.step_end()
            self.done += 1
            self._evaluations = 0
            self.maker, self.guessed = maker, guessed
            for listener in self._listeners:
                listener()

    def on_evaluation(self, listener: Callable[[int], None]) -> None:
        """Told how often an optimizer has called its closure in a step that goes on."""
        self._evaluation_listeners.append(listener)

    def evaluated(self) -> None:
        if not self.paused:
            self._evaluations += 1
            for listener in self._evaluation_listeners:
                listener(self._evaluations)


class FirstOptimizer:
    """Which optimizer's steps are the run's: the outermost that is seen first.

    A wrapper that is an optimizer itself steps around the one inside it, and that is one step. So
    is a step of a wrapper that only looks like one, and that may step the one inside it several
    times: from the second on its own steps count. When the first is gone, or another steps on and
    on without it, a new attempt or stage has begun.
    """

    def __init__(self, steps: Steps, optimizers: Iterable[Optimizer]) -> None:
        self._steps = steps
        first = next(filter(_is_announced, optimizers), None)
        self._first = None if first is None else weakref.ref(first)
        self._others: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self.stepped = False
        self._wrapper: _Wrapper | None = None
        self._no_wrappers: set[CodeType] = set()  # that were running when an optimizer stepped

    def begins(self, optimizer: Optimizer) -> None:
        """An outermost step of `optimizer`; a trial's optimizer is not the run's."""
        if self._steps.paused:
            return
        self.stepped = True
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
        if self._first() is optimizer:
            self._others.clear()
            return
        self._others[optimizer] = self._others.get(optimizer, 0) + 1
        if self._others[optimizer] > _FORSAKEN:
            self._first = weakref.ref(optimizer)

    def ended(self, optimizer: Optimizer) -> None:
        if self._first is None or self._first() is not optimizer:
            return
        if self._wrapper is not None and self._wrapper.follows(optimizer):
            return
        self._wrapper = None
        wrapper = self._around(optimizer)
        if wrapper is not None:
            self._wrapper = _Wrapper(wrapper, optimizer, self._steps)
        self._steps.end(type(wrapper or optimizer).__name__)

    def evaluated(self) -> None:
        self._steps.evaluated()

    def _around(self, optimizer: Optimizer) -> Any:
        """Whose `step` is calling `optimizer`'s: an object with parameter groups that keeps it.

        Frames are not asked for their variables, which would keep tensors alive: who keeps the
        optimizer and has the code that runs is the one.
        """
        running = {code for code in _methods_running("step") if code not in self._no_wrappers}
        if not running:
            return None
        keepers = (owner for owner in _keepers(optimizer) if _code_of_step(owner) in running)
        found = next(keepers, None)
        if found is None:
            self._no_wrappers |= running
        return found

    def close(self) -> None:
        if self._wrapper is not None:
            self._wrapper.close()


def _is_announced(optimizer: Optimizer) -> bool:
    """Whether torch tells of its steps: not of a wrapper's that never called Optimizer.__init__,
    as Accelerate's. Then it is the one inside that will be seen."""
    return bool(getattr(type(optimizer).step, "hooked", False))


class _Wrapper:
    """Something that steps an optimizer as part of its own steps, which are counted."""

    def __init__(self, wrapper: Any, inner: Optimizer, steps: Steps) -> None:
        self._wrapper, self._inner = weakref.ref(wrapper), weakref.ref(inner)
        name, step = type(wrapper).__name__, wrapper.step

        @functools.wraps(step)
        def counted(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            steps.end(name)
            return result

        wrapper.step = counted

    def follows(self, optimizer: Optimizer) -> bool:
        return self._wrapper() is not None and self._inner() is optimizer

    def close(self) -> None:
        wrapper = self._wrapper()
        if wrapper is not None:
            del wrapper.step


def _methods_running(name: str) -> Iterator[CodeType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == name and code.co_varnames[:1] == ("self",):
            yield code
        frame = frame.f_back


def is_stepping(optimizer: Optimizer) -> bool:
    """Whether a step of it is on its way, and not ended by an exception."""
    code = getattr(inspect.unwrap(type(optimizer).step), "__code__", None)
    return code is None or code in _methods_running("step")


def _keepers(optimizer: Optimizer) -> Iterator[Any]:
    for referrer in gc.get_referrers(optimizer):
        owners = gc.get_referrers(referrer) if isinstance(referrer, dict) else [referrer]
        for owner in owners:
            if getattr(owner, "__dict__", None) is referrer or owner is referrer:
                yield owner


def _code_of_step(owner: Any) -> Any:
    if isinstance(owner, (Optimizer, nn.Module, type)) or not hasattr(owner, "param_groups"):
        return None
    return getattr(getattr(type(owner), "step", None), "__code__", None)


class GuessedSteps:
    """Steps of a program without an optimizer of torch's.

    Whatever updates a model changes its parameters or clears their gradients between two
    backwards; gradient accumulation does neither. So the step is seen to be over when the next
    backward begins.

    Where an optimizer of torch's has the parameters, its step will tell. What changes before is
    clipping, an attack on the model, or half a step, and not a step.
    """

    MAKER = "parameter updates"

    def __init__(
        self, steps: Steps, optimizers: FirstOptimizer, roots: Callable[[], list[nn.Module]]
    ) -> None:
        self._steps = steps
        self._optimizers = optimizers
        self._roots = roots  # the outermost modules
        self._after: list[tuple[weakref.ref[Tensor], tuple[int, ...]]] = []
        self._patience: int | None = None

    def backward_begins(self) -> None:
        known, self._after = self._after, []
        if self._optimizers.stepped:
            return
        alive = ((weak(), state) for weak, state in known)
        changed = (own for own, state in alive if own is not None and _state(own) != state)
        parameter = next(changed, None)
        if parameter is not None and not self._will_be_told(parameter):
            self._steps.end(self.MAKER, guessed=True)

    def _will_be_told(self, parameter: Tensor) -> bool:
        if self._patience is None:  # looking costs more than a step may
            self._patience = _PATIENCE if _has_optimizer(parameter) else 0
        self._patience -= 1
        return self._patience >= 0

    def backward_ended(self) -> None:
        if not self._optimizers.stepped:
            sample = (parameter for parameter in self._sample() if parameter.grad is not None)
            self._after = [(weakref.ref(parameter), _state(parameter)) for parameter in sample]

    def _sample(self) -> Iterator[nn.Parameter]:
        for root in self._roots():
            yield from itertools.islice((p for p in root.parameters() if p.requires_grad), _SAMPLED)


def _has_optimizer(parameter: Tensor) -> bool:
    optimizers = (own for own in gc.get_objects() if issubclass(type(own), Optimizer))
    # One that is being made, or was given up half-made, has no groups yet.
    groups = (getattr(own, "param_groups", ()) for own in optimizers if _is_announced(own))
    return any(own is parameter for of_one in groups for group in of_one for own in group["params"])


def _state(parameter: Tensor) -> tuple[int, ...]:
    grad = parameter.grad
    return (parameter._version,) if grad is None else (parameter._version, id(grad), grad._version)
