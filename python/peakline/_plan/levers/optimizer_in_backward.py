"""Each parameter is updated as soon as its gradient is there, and the gradient is freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer

from peakline._plan.facts import CLIPPING, Facts
from peakline._plan.levers.alone import Alone
from peakline._plan.levers.lever import Lever, one_of
from peakline._plan.stage import Stage

_CLIPS = (
    "the script clips gradients over all parameters, and with the optimizer in backward they are "
    "never there together"
)
_ACCUMULATES = (
    "the script runs several backwards for one step, and with the optimizer in backward each would "
    "be a step"
)
_CLOSURE = "the optimizer's step takes a closure, which the optimizer in backward cannot call"
Refuse = Callable[[str], None]


def _fail(sentence: str) -> None:
    raise RuntimeError(sentence)


class InBackward:
    """Steps `optimizer` for one parameter at a time, from inside backward.

    State, learning rates and state_dict() are those of `optimizer`, whose own step then finds no
    gradients and does nothing.
    """

    def __init__(self, optimizer: Optimizer, refuse: Refuse = _fail) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._refuse = refuse
        self._stepped: set[int] = set()  # parameters, since the last step
        self._alone = Alone(optimizer)
        self._group: dict[int, int] = {}  # of each parameter
        self._handles: list[Any] = [optimizer.register_step_pre_hook(self._step_called)]

    def add_groups(self) -> None:
        """All parameters that have not been added."""
        optimizer = self._optimizer()
        for number, group in enumerate(optimizer.param_groups if optimizer else ()):
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in self._group:
                    self._group[id(parameter)] = number
                    hook = parameter.register_post_accumulate_grad_hook(self._gradient_came)
                    self._handles.append(hook)

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _gradient_came(self, parameter: torch.Tensor) -> None:
        optimizer = self._optimizer()
        if optimizer is None or parameter.grad is None:
            return
        if id(parameter) in self._stepped:
            self._refuse(_ACCUMULATES)
        self._stepped.add(id(parameter))
        group = optimizer.param_groups[self._group[id(parameter)]]
        self._alone.step(optimizer, group, [parameter])
        parameter.grad = None

    def _step_called(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is not None:
            self._refuse(_CLOSURE)
        self._stepped.clear()


def _apply(on: bool, stage: Stage) -> None:
    if not on:
        return
    made, added = Optimizer.__init__, Optimizer.add_param_group
    watched: weakref.WeakKeyDictionary[Optimizer, InBackward] = weakref.WeakKeyDictionary()

    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        watched[self] = InBackward(self, stage.refuse)
        watched[self].add_groups()

    def add_param_group(self: Optimizer, group: dict[str, Any]) -> None:
        added(self, group)
        if self in watched:
            watched[self].add_groups()

    def clip(*args: Any, **kwargs: Any) -> Any:
        stage.refuse(_CLIPS)

    stage.patches.set(Optimizer, "__init__", init)
    stage.patches.set(Optimizer, "add_param_group", add_param_group)
    for name in CLIPPING:
        stage.patches.set_where_present(clip_grad, name, clip)


def _tries(facts: Facts) -> Sequence[bool]:
    return [True] if facts.optimizers and not facts.clips else []


LEVER = Lever(
    key="optimizer.in_backward",
    takes="true or false",
    check=one_of(True, False),
    changes=lambda on: "optimizer in backward" if on else "optimizer after backward",
    paste=lambda value: [],
    apply=_apply,
    tries=_tries,
    applied_by_checkpoint=True,
)
