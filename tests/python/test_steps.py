"""Which optimizer's steps are the run's."""

from __future__ import annotations

import contextlib

import torch

import peakline
from peakline._steps import FirstOptimizer, Steps


def sgd() -> torch.optim.SGD:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)])


def step(first: FirstOptimizer, optimizer: torch.optim.Optimizer) -> None:
    first.begins(optimizer)
    first.ended(optimizer)


def test_an_optimizer_of_a_trial_that_lives_on_is_not_the_runs() -> None:
    steps = Steps()
    first = FirstOptimizer(steps, [])
    trial, real = sgd(), sgd()
    with steps.not_counted():
        step(first, trial)
    for _ in range(3):
        step(first, real)
    assert steps.done == 3
    assert trial.param_groups


def test_the_second_optimizer_of_a_step_makes_no_step_of_its_own() -> None:
    steps = Steps()
    first = FirstOptimizer(steps, [])
    generator, critic = sgd(), sgd()
    for _ in range(3):
        step(first, generator)
        step(first, critic)
    assert steps.done == 3


def test_a_step_that_ended_with_an_exception_hides_no_other() -> None:
    def fail() -> None:
        raise ValueError("no such batch")

    failing, real = sgd(), sgd()
    with peakline.track() as run:
        with contextlib.suppress(ValueError):
            failing.step(fail)
        del failing
        for _ in range(3):
            real.zero_grad()
            real.param_groups[0]["params"][0].sum().backward()
            real.step()
    assert len(run.steps) == 3
