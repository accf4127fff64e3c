"""Programs that leak, as people really write them, and programs that only look as if they did.

Each takes a device and a number of steps, and calls `ended()` while what it keeps still lives.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable

import torch
from torch import nn

Ended = Callable[[], None]
WIDTH = 64
ROWS = 512  # so that a batch weighs enough for a leak of a few steps


def make(device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(device)
    return model, torch.optim.Adam(model.parameters())


def batch(device: str) -> torch.Tensor:
    return torch.ones(ROWS, WIDTH, device=device)


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor, **options: bool) -> None:
    optimizer.zero_grad()
    loss.backward(**options)
    optimizer.step()


# Leaks.


def kept_losses(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    losses = []
    for _ in range(steps):
        loss = model(batch(device)).mean()  # leaks
        update(optimizer, loss)
        losses.append(loss)
    ended()


def retained_graphs(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    outputs = []
    for _ in range(steps):
        hidden = model[0](batch(device)).exp()  # leaks
        loss = hidden.mean()
        outputs.append(loss)
        update(optimizer, loss, retain_graph=True)
    ended()


def hidden_states(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    states: dict[str, list[torch.Tensor]] = {"hidden": []}
    for _ in range(steps):
        hidden = model[0](batch(device))
        states["hidden"].append(hidden.detach().clone())  # leaks
        update(optimizer, model[2](model[1](hidden)).mean())
    ended()


def hooks(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    seen: list[torch.Tensor] = []

    def note(module: nn.Module, args: object, output: torch.Tensor) -> None:
        seen.append(output.detach() * 2)  # leaks

    model[0].register_forward_hook(note)
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
    ended()


def tracebacks(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    errors = []

    def check(x: torch.Tensor) -> None:
        squares = x * x  # leaks
        if squares.shape[0] == ROWS:
            raise ValueError("not a good batch")

    for _ in range(steps):
        x = batch(device)
        try:
            check(x)
        except ValueError as error:
            errors.append(error)
        update(optimizer, model(x).mean())
    ended()


def kept_after_step(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    outputs = []
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
        outputs.append(batch(device) * 2)  # leaks
    ended()


def new_parameters(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
        one = nn.Parameter(batch(device) * 2)  # leaks
        optimizer.add_param_group({"params": [one]})
    ended()


def keep(device: str, steps: int) -> list[torch.Tensor]:
    model, optimizer = make(device)
    outputs = []
    for _ in range(steps):
        outputs.append(batch(device) * 2)
        update(optimizer, model(outputs[-1]).mean())
    return outputs


# Who holds what the first step left; what else is kept with it, by the line's text.
LEAKS: dict[Callable[[str, int, Ended], None], tuple[str, set[str]]] = {
    kept_losses: ("losses[0]", set()),
    retained_graphs: (
        "outputs[0].grad_fn, saved for ExpBackward0",
        {"loss = hidden.mean()", "return torch.ones(ROWS, WIDTH, device=device)"},
    ),
    hidden_states: ("states['hidden'][0]", set()),
    hooks: ("seen[0]", set()),
    tracebacks: (
        "errors[0].__traceback__ → tracebacks.<locals>.check(): squares",
        {"return torch.ones(ROWS, WIDTH, device=device)"},
    ),
}


# Who holds what these leave, step after step.
HELD = {
    "kept_after_step": "kept_after_step(): outputs[…]",
    "new_parameters": "new_parameters(): optimizer.param_groups[…]['params'][0]",
    "hidden_states": "hidden_states(): states['hidden'][…]",
}


# Clean ones.


def plain(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    history = []
    for _ in range(steps):
        loss = model(batch(device)).mean()
        update(optimizer, loss)
        history.append(1.0)  # a number keeps nothing
    ended()


class Trainer:
    def __init__(self, device: str) -> None:
        self.model, self.optimizer = make(device)
        self.loss = torch.zeros((), device=device)
        self.last: torch.Tensor | None = None

    def step(self, x: torch.Tensor) -> None:
        output = self.model(x)
        loss = output.mean()
        update(self.optimizer, loss)
        self.loss = self.loss + loss.detach()
        self.last = output.detach()


def trainer(device: str, steps: int, ended: Ended) -> None:
    one = Trainer(device)
    for _ in range(steps):
        one.step(batch(device))
    ended()


def growing_kv_cache(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    cache = torch.zeros(0, WIDTH, device=device)
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
        cache = torch.cat([cache, batch(device)])  # each replaces the one before
    ended()


def ema(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    average = copy.deepcopy(model)
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new, 0.1)
    ended()


def replay_buffer(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    buffer: deque[torch.Tensor] = deque(maxlen=4)
    for _ in range(steps):
        buffer.append(batch(device) * 2)
        update(optimizer, model(buffer[0]).mean())
    ended()


def gradient_accumulation(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(4):
            (model(batch(device)).mean() / 4).backward()
        optimizer.step()
    ended()


def momentum_and_schedule(device: str, steps: int, ended: Ended) -> None:
    model, _ = make(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
        schedule.step()
    ended()


def lazy_cache(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    cache: dict[int, torch.Tensor] = {}
    for i in range(steps):
        key = i % 2
        if key not in cache:
            cache[key] = batch(device) + key
        update(optimizer, model(cache[key]).mean())
    ended()


def evaluation_between(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
        with torch.no_grad():
            outputs = [model(batch(device)) for _ in range(3)]
        torch.cat(outputs)
    ended()


def previous_batch(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    before = after = batch(device)
    for _ in range(steps):
        before, after = after, batch(device) * 2
        update(optimizer, (model(after) - model(before)).mean())
    ended()


def two_in_turns(device: str, steps: int, ended: Ended) -> None:
    model, optimizer = make(device)
    last: deque[torch.Tensor] = deque(maxlen=2)
    for _ in range(steps):
        update(optimizer, model(batch(device)).mean())
        last.append(batch(device) * 2)
    ended()


CLEAN = [
    plain,
    trainer,
    growing_kv_cache,
    ema,
    replay_buffer,
    gradient_accumulation,
    momentum_and_schedule,
    lazy_cache,
    evaluation_between,
    previous_batch,
    two_in_turns,
]
