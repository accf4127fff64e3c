"""Steps that repeat: their ops come from memory, and must look as if each had been watched."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import peakline
from peakline.run import TimelinePoint
from peakline.track import Tracker
from track_models import Net, train_step


def allocations(run: peakline.Run) -> Counter[str]:
    return Counter({use.name: use.allocations for use in run.top(10_000)})


def tracked(
    steps: int, reentrant: bool | None = None, batches: tuple[int, ...] = (32,)
) -> peakline.Run:
    torch.manual_seed(0)
    model = Net(reentrant=reentrant)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        train_step(model, optimizer)
    with peakline.track(model, optimizer) as run:
        for step in range(steps):
            train_step(model, optimizer, batch=batches[step % len(batches)])
    return run


@pytest.mark.parametrize("ops", [True, False])
def test_equal_steps_are_soon_not_watched_any_more(ops: bool) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    tracker = Tracker([model], [optimizer], ops=ops)
    run = tracker.start()
    try:
        seen = []
        for _ in range(6):
            train_step(model, optimizer)
            run.peak("cpu")  # everything up to here has been looked at
            seen.append(tracker.repeating)
        # The first step makes the optimizer's state, the two after it are equal.
        assert seen == [False, False, True, True, True, True]
        train_step(model, optimizer, batch=48)
        assert not tracker.repeating
    finally:
        tracker.stop()
    assert not tracker.repeating


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_ten_steps_are_five_times_two_steps(reentrant: bool | None) -> None:
    two, ten = tracked(2, reentrant), tracked(10, reentrant)
    expected = Counter({name: 5 * count for name, count in allocations(two).items()})
    assert allocations(ten) == expected
    assert ten.peak("cpu").by_category == two.peak("cpu").by_category
    assert ten.peak("cpu").op == two.peak("cpu").op
    assert ten.warnings == []


def test_steps_of_changing_size_lose_no_op_names() -> None:
    once, often = tracked(3, batches=(32, 48, 16)), tracked(12, batches=(32, 48, 16))
    expected = Counter({name: 4 * count for name, count in allocations(once).items()})
    assert allocations(often) == expected


def test_after_a_step_that_is_different_ops_are_watched_again() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    with peakline.track(model, optimizer) as run:
        for _ in range(6):
            train_step(model, optimizer)
        with torch.no_grad():  # what no step before did
            held = [torch.logspace(0, 1, 1000 + i) for i in range(50)]
        train_step(model, optimizer)
    # The op at the difference goes without a name, those after it have theirs.
    assert allocations(run)["aten::logspace"] >= len(held) - 1


class Replacing(torch.optim.Optimizer):
    """Makes new state, and new parameters, in every step."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                state = self.state[parameter]
                state["mean"] = state.get("mean", 0.0) * 0.9 + parameter.grad
                parameter.data = parameter.data - 1e-3 * state["mean"]


@pytest.mark.parametrize("make", [torch.optim.SGD, lambda p: Replacing(p, {})])
def test_blocks_of_repeated_steps_are_what_those_of_watched_steps_are(
    make: type[torch.optim.Optimizer],
) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    size = sum(parameter.nbytes for parameter in model.parameters())
    optimizer = make(model.parameters())
    with peakline.track(model, optimizer) as run:
        for step in range(12):
            model(torch.ones(8, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 3:
                run.peak("cpu")  # by now it has been seen that steps repeat
    points = run.timeline("cpu")

    def highest(part: list[TimelinePoint]) -> dict[str, int]:
        return {name: max(p.by_category[name] for p in part) for name in points[0].by_category}

    early, late = points[: len(points) // 3], points[-len(points) // 3 :]
    assert highest(late) == highest(early)
    assert highest(late)["Gradient"] == size
    assert highest(late)["Parameter"] >= size
