"""Whoever has left a tracked run or a virtual GPU holds nothing of it but the answer."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

import peakline
from peakline.track import Tracker

KINDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "track": peakline.track,
    "virtual_gpu": lambda: peakline.virtual_gpu("h200"),
}


def trained(enter: Callable[[], AbstractContextManager[Any]]) -> tuple[Any, list[weakref.ref[Any]]]:
    """A run of three steps, and what it has seen."""
    with enter() as run:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        model = model.cuda() if torch.cuda.is_available() else model
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            model(torch.ones(2, 8, device=model[0].weight.device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return run, [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(optimizer)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_kept_keeps_no_model(kind: str) -> None:
    run, seen = trained(KINDS[kind])
    gc.collect()
    assert [ref() for ref in seen] == [None, None, None]
    assert run.peak().bytes > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_the_program_lets_go_is_gone_while_the_run_goes_on(kind: str) -> None:
    with KINDS[kind]():
        for _ in range(2):
            seen = trial()
            gc.collect()
            assert [ref() for ref in seen] == [None, None, None]


def trial() -> list[weakref.ref[Any]]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(optimizer)]


@pytest.mark.parametrize("kind", KINDS)
def test_entering_and_leaving_leaves_nothing(kind: str) -> None:
    before = trackers()
    for _ in range(3):
        trained(KINDS[kind])
    assert trackers() == before


def trackers() -> int:
    gc.collect()
    return sum(type(each) is Tracker for each in gc.get_objects())
