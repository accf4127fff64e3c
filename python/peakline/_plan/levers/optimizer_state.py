"""The optimizer's state lies in the host's pinned memory, and visits the GPU in its step."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from peakline._plan.facts import Facts
from peakline._plan.levers.alone import Alone
from peakline._plan.levers.lever import Lever, one_of
from peakline._plan.stage import Stage

_AT_A_TIME = 256 * 2**20  # bytes of parameters whose state is on the GPU together
_SMALL = 4096  # bytes of a state that is not worth a copy: step counts


def keep_on_host(optimizer: Optimizer) -> None:
    """From the next step on. Parameters that are on the host themselves are left alone."""
    alone = Alone(optimizer)

    def step(self: Optimizer, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, some in _portions(self):
            for parameter in some:
                _bring(self.state.get(parameter, {}), parameter.device)
            alone.step(self, group, some)
            for parameter in some:
                _send(self.state.get(parameter, {}))
        return loss

    hooked: Any = Optimizer.profile_hook_step(step)
    optimizer.step = types.MethodType(hooked, optimizer)  # type: ignore[method-assign]
    optimizer.register_state_dict_pre_hook(_wait)


def _wait(optimizer: Optimizer) -> None:
    """Copies to the host are on their way when a step returns."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _portions(optimizer: Optimizer) -> Iterator[tuple[dict[str, Any], list[torch.Tensor]]]:
    for group in optimizer.param_groups:
        some: list[torch.Tensor] = []
        size = 0
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            own = parameter.numel() * parameter.element_size()
            if some and size + own > _AT_A_TIME:
                yield group, some
                some, size = [], 0
            some.append(parameter)
            size += own
        if some:
            yield group, some


def _bring(state: dict[str, Any], device: torch.device) -> None:
    for name, value in state.items():
        if _travels(value) and value.device.type == "cpu" and device.type != "cpu":
            state[name] = value.to(device, non_blocking=True)


def _send(state: dict[str, Any]) -> None:
    for name, value in state.items():
        if _travels(value) and value.device.type == "cuda":
            there = torch.empty_like(value, device="cpu", pin_memory=True)
            state[name] = there.copy_(value, non_blocking=True)


def _travels(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() * value.element_size() > _SMALL


def _apply(where: str, stage: Stage) -> None:
    if where != "host":
        return
    made = Optimizer.__init__

    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        keep_on_host(self)

    stage.patches.set(Optimizer, "__init__", init)


def _tries(facts: Facts) -> Sequence[str]:
    return ["host"] if facts.optimizers and not facts.fsdp else []


LEVER = Lever(
    key="optimizer.state",
    takes="'gpu' or 'host'",
    check=one_of("gpu", "host"),
    changes=lambda where: f"optimizer state on the {'host' if where == 'host' else 'GPU'}",
    paste=lambda value: [],
    apply=_apply,
    tries=_tries,
    applied_by_checkpoint=True,
)
