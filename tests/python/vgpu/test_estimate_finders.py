"""Scripts that look for their batch size by themselves, as accelerate and Lightning do."""

import json
from pathlib import Path

import pytest
from estimate_support import Answer, Estimate, write

# accelerate's way, as far as a script sees it.
ACCELERATE = """
    import functools
    import torch

    def find_executable_batch_size(function=None, starting_batch_size=128):
        if function is None:
            return functools.partial(
                find_executable_batch_size, starting_batch_size=starting_batch_size
            )

        def decorator(*args):
            batch = starting_batch_size
            while True:
                try:
                    return function(batch, *args)
                except torch.OutOfMemoryError:
                    batch //= 2

        return decorator
"""
TRAIN = """
    import torch
    from torch import nn

    def train(batch, steps):
        model = nn.Linear(1024, 1024, device="cuda")
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(steps):
            model(torch.zeros(batch, 1024, device="cuda")).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.fixture(autouse=True)
def libraries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "accelerate" / "utils").mkdir(parents=True)
    write(folder, "accelerate/__init__.py", "")
    write(
        folder,
        "accelerate/utils/__init__.py",
        "from accelerate.utils.memory import find_executable_batch_size\n",
    )
    write(folder, "accelerate/utils/memory.py", ACCELERATE)
    (folder / "pytorch_lightning" / "tuner").mkdir(parents=True)
    write(folder, "pytorch_lightning/__init__.py", "")
    write(folder, "pytorch_lightning/tuner/__init__.py", "")
    write(folder, "training.py", TRAIN)
    import sys

    for name in list(sys.modules):
        if name.split(".")[0] in ("accelerate", "pytorch_lightning", "training"):
            monkeypatch.delitem(sys.modules, name)


def test_the_batch_that_accelerate_goes_on_with_is_named(folder: Path, answer: Answer) -> None:
    source = """
        from accelerate.utils import find_executable_batch_size
        from training import train

        find_executable_batch_size(train, starting_batch_size=65536)(100)
    """
    write(folder, "finds.py", source)
    found = answer("finds.py", "--memory", "256MiB")
    assert found["fits"]
    said = [line for line in found["warnings"] if line.startswith("find_executable_batch_size")]
    assert said == ["find_executable_batch_size went on with a batch of 8192"]


def test_a_search_that_ends_without_a_batch_does_not_name_one(
    folder: Path, estimate: Estimate
) -> None:
    source = """
        import torch
        from accelerate.utils import find_executable_batch_size

        def train(batch):
            if batch == 0:
                raise RuntimeError("No executable batch size found, reached zero.")
            torch.zeros(2**30, device="cuda")

        find_executable_batch_size(train, starting_batch_size=4)()
    """
    write(folder, "finds.py", source)
    done = estimate("finds.py", "--memory", "256MiB", "--json", "-")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    said = [line for line in found["warnings"] if line.startswith("find_executable_batch_size")]
    assert said == ["find_executable_batch_size found no batch that works"]


def test_trials_of_lightning_s_finder_are_no_steps(folder: Path, answer: Answer) -> None:
    scaling = """
        from training import train

        def _scale_batch_size(trainer):
            for batch in (256, 512, 1024):
                train(batch, 5)
            return 1024
    """
    write(folder, "pytorch_lightning/tuner/batch_size_scaling.py", scaling)
    source = """
        from pytorch_lightning.tuner.batch_size_scaling import _scale_batch_size
        from training import train

        train(_scale_batch_size(None), 100)
    """
    write(folder, "lightens.py", source)
    found = answer("lightens.py")
    assert "Lightning's batch-size finder went on with a batch of 1024" in found["warnings"]
    assert found["steps_completed"] == 3


def test_a_found_batch_that_does_not_fit_after_all_is_not_looked_for_again_without_a_limit(
    folder: Path, estimate: Estimate
) -> None:
    scaling = """
        def _scale_batch_size(trainer):
            return 65536  # Lightning ends with a size that it has not tried, where that is its last
    """
    write(folder, "pytorch_lightning/tuner/batch_size_scaling.py", scaling)
    source = """
        from pytorch_lightning.tuner.batch_size_scaling import _scale_batch_size
        from training import train

        train(_scale_batch_size(None), 100)
    """
    write(folder, "lightens.py", source)
    done = estimate("lightens.py", "--memory", "256MiB", "--json", "-")
    assert done.returncode == 3
    assert "second pass" not in done.stderr
    found = json.loads(done.stdout)
    assert found["needed_reserved"] is None
    assert any("finds another batch" in line for line in found["warnings"])
