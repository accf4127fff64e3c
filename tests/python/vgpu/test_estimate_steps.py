"""What `peakline estimate` counts as a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from estimate_support import OWN_OPTIMIZER, Answer, Estimate, write


def test_steps_of_an_optimizer_that_torch_does_not_know_are_guessed_and_the_guess_is_said(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "own.py", OWN_OPTIMIZER)
    done = estimate("own.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("step") == 3
    assert "3 steps of parameter updates in" in done.stdout.splitlines()[0]
    assert "no optimizer of torch's made a step" in done.stdout
    assert "--step-on" in done.stdout


ACCUMULATES = """
    import torch
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for n in range(40):
        loss = model(torch.randn(8, 64, device="cuda")).sum()
        loss.backward()
        {between}
        if n % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "between",
    [
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
        "model.zero_grad()",
        "torch._foreach_add_([p.data for p in model.parameters()], 1e-3)",
        "with torch.no_grad(): model.weight.add_(1e-3)",
    ],
    ids=["clipping", "clearing", "changing data", "half a step"],
)
def test_what_happens_before_an_optimizer_steps_is_no_step(
    folder: Path, answer: Answer, between: str
) -> None:
    write(folder, "accumulates.py", ACCUMULATES.format(between=between))
    found = answer("accumulates.py")
    assert (found["steps_completed"], found["steps_by"]) == (3, "Adam")


def test_an_optimizer_that_never_steps_is_not_waited_for_longer(
    folder: Path, answer: Answer
) -> None:
    idle = ACCUMULATES.replace("range(40)", "range(100_000)").replace("n % 8 == 7", "False")
    write(folder, "idle.py", idle.format(between="model.zero_grad()"))
    found = answer("idle.py")
    assert (found["steps_completed"], found["steps_by"]) == (3, "parameter updates")


LONG_STEP = """
    import torch
    class Searches(torch.optim.Optimizer):
        def step(self, closure):
            for _ in range(100_000):
                closure()
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = Searches(model.parameters(), {})
    x = torch.randn(8, 8, device="cuda")
    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    torch.zeros(1 << 40, device="cuda")
"""


def test_a_step_that_evaluates_its_closure_on_and_on_is_ended(folder: Path, answer: Answer) -> None:
    write(folder, "long.py", LONG_STEP)
    found = answer("long.py")
    assert found["fits"] is True
    assert any("its closure 300 times" in warning for warning in found["warnings"])


WRAPPED = """
    import torch

    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            self.inner.step()
            torch.zeros(2**20, device="cuda")  # after the inner one

    model = torch.nn.Linear(64, 64).cuda()
    optimizer = Around(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(100):
        model(torch.zeros(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        print("step", step)
"""


def test_a_wrapper_around_an_optimizer_makes_one_step_a_call(folder: Path, answer: Answer) -> None:
    write(folder, "wrapped.py", WRAPPED)
    found = answer("wrapped.py")
    assert found["steps_completed"] == 3
    assert found["steps_by"] == "Around"


SHARDED = """
    import torch

    class Sharded:  # no optimizer of torch's, and steps its own once for each group
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.param_groups = list(optimizer.param_groups)

        def step(self):
            for group in self.param_groups:
                self.optimizer.param_groups = [group]
                self.optimizer.step()

    layers = [torch.nn.Linear(64, 64).cuda() for _ in range(3)]
    groups = [{"params": layer.parameters()} for layer in layers]
    optimizer = Sharded(torch.optim.SGD(groups, lr=0.1))
    for step in range(100):
        torch.nn.Sequential(*layers)(torch.zeros(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        print("made", step)
"""


def test_a_wrapper_that_steps_its_optimizer_once_for_each_group_makes_one_step(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "sharded.py", SHARDED)
    done = estimate("sharded.py", "--json", "answer.json")
    found = json.loads((folder / "answer.json").read_text())
    assert (found["steps_completed"], found["steps_by"]) == (3, "Sharded")
    assert done.stderr.count("made") == 2  # the third is ended at its end


def test_a_new_attempt_with_a_new_optimizer_is_counted(folder: Path, answer: Answer) -> None:
    source = """
        import torch

        def attempt(batch):
            model = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(200):
                model(torch.zeros(batch, 64, device="cuda")).sum().backward()
                optimizer.step()
                if batch > 8:
                    raise RuntimeError("too much")

        for batch in (16, 8):
            try:
                attempt(batch)
            except RuntimeError:
                pass
    """
    write(folder, "attempts.py", source)
    assert answer("attempts.py")["steps_completed"] <= 4


CAPTURED = """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.empty(4096, 1024, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    print("captured")
    for i in range(1000000):
        graph.replay()
"""


def test_steps_that_warm_up_for_a_capture_do_not_count(answer: Answer, folder: Path) -> None:
    """What is captured needs a pool of its own, and replays are steps."""
    write(folder, "captured.py", CAPTURED)
    found = answer("captured.py")
    assert len(found["steps"]) == 7  # three to warm up, the captured one, three replays
    assert found["step_ms"] > 0.1


CRITIC = """
    import torch
    critic, generator = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(64, 64).cuda()
    often = torch.optim.SGD(critic.parameters())
    seldom = torch.optim.Adam(generator.parameters())
    for n in range(100):
        critic(generator(torch.randn(8, 64, device="cuda"))).sum().backward()
        often.step()
        if n % 5 == 4:
            seldom.step()
"""


def test_an_optimizer_that_made_no_step_is_told(folder: Path, answer: Answer) -> None:
    write(folder, "critic.py", CRITIC)
    told = (
        "Adam over 4,160 parameters made no step in the 3 steps, so what it keeps is not counted; "
        "--steps 30 shows more"
    )
    assert told in answer("critic.py")["warnings"]
    assert not any("no step" in line for line in answer("critic.py", "--steps", "6")["warnings"])
