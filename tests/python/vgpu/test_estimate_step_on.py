"""`peakline estimate --step-on`: what a step is, by the user's word."""

from __future__ import annotations

from pathlib import Path

import pytest
from estimate_support import OWN_OPTIMIZER, Answer, Estimate, write


def test_step_on_names_a_method_of_the_script(folder: Path, estimate: Estimate) -> None:
    write(folder, "own.py", OWN_OPTIMIZER)
    done = estimate("own.py", "--step-on", "__main__.Trainer.train_step")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("step") == 2  # the third ended it inside
    assert "3 steps of __main__.Trainer.train_step" in done.stdout


def test_step_on_names_a_function_of_another_module(folder: Path, answer: Answer) -> None:
    write(folder, "helper.py", "class T:\n    def go(self, model, x):\n        return model(x)\n")
    source = """
        import torch
        from helper import T
        model = torch.nn.Linear(8, 8).cuda()
        for _ in range(50):
            T().go(model, torch.zeros(8, 8, device="cuda"))
    """
    write(folder, "infer.py", source)
    found = answer("infer.py", "--step-on", "helper.T.go")
    assert found["steps_completed"] == 3
    assert found["steps_by"] == "helper.T.go"


def test_step_on_forward_counts_calls_of_the_outermost_module(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
        for _ in range(50):
            model(torch.zeros(8, 8, device="cuda"))
    """
    write(folder, "infer.py", source)
    assert answer("infer.py", "--step-on", "forward", "--steps", "5")["steps_completed"] == 5
    assert answer("infer.py")["steps_completed"] == 0  # to its end


def test_step_on_something_that_is_never_called_is_said(folder: Path, answer: Answer) -> None:
    write(folder, "infer.py", "import helper, torch\ntorch.zeros(9, device='cuda')\n")
    found = answer("infer.py", "--step-on", "helper.missing")
    assert any("was never called" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.Trainer.step", "names nowhere.Trainer.step, and there is no module nowhere"),
        ("Trainee.step", "there is no module Trainee"),
        ("__main__.Trainee.step", "names Trainee, which the script does not define"),
        ("train_step", "names train_step, which the script does not define"),
    ],
)
def test_step_on_something_that_cannot_be_is_refused_before_the_script_runs(
    folder: Path, estimate: Estimate, name: str, sentence: str
) -> None:
    write(folder, "own.py", OWN_OPTIMIZER)
    done = estimate("own.py", "--step-on", name)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "step 0" not in done.stderr


@pytest.mark.parametrize("name", ["own.go", "Own.go", "own.Own.go"])
def test_step_on_takes_the_scripts_own_names_as_they_are_written_there(
    folder: Path, estimate: Estimate, name: str
) -> None:
    body = "def go():\n    torch.zeros(9, device='cuda')\n"
    if "Own" in name:
        body = (
            "class Own:\n    @staticmethod\n    def go():\n        torch.zeros(9, device='cuda')\n"
        )
    loop = "for _ in range(9):\n    " + ("Own.go()" if "Own" in name else "go()")
    write(folder, "own.py", f"import torch\n{body}{loop}\n")
    assert (
        f"3 steps of __main__.{name.removeprefix('own.')}"
        in estimate("own.py", "--step-on", name).stdout
    )


def test_step_on_finds_what_a_star_brings(folder: Path, estimate: Estimate) -> None:
    write(folder, "helper.py", "import torch\ndef go():\n    torch.zeros(9, device='cuda')\n")
    write(folder, "infer.py", "from helper import *\nfor _ in range(9):\n    go()\n")
    assert "3 steps of __main__.go" in estimate("infer.py", "--step-on", "go").stdout
