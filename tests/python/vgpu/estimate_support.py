"""Runs `peakline estimate` on scripts that tests write, most of them in this process."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peakline import _estimate_script

TRAIN = """
    import argparse
    import torch
    from torch import nn
    from helper import width

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch", type=int, default=8)
        args = parser.parse_args()
        model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(100):
            loss = model(torch.randn(args.batch, width, device="cuda")).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print("step", step, loss.item())
        raise SystemExit("never reached")

    if __name__ == "__main__":
        main()
"""

# Its optimizer is none that torch knows.
OWN_OPTIMIZER = """
    import torch

    class Own:  # no torch.optim.Optimizer
        def __init__(self, parameters):
            self.parameters = list(parameters)

        def step(self):
            for parameter in self.parameters:
                parameter.data.add_(parameter.grad, alpha=-0.1)
                parameter.grad = None

    class Trainer:
        def __init__(self):
            self.model = torch.nn.Linear(64, 64).cuda()
            self.optimizer = Own(self.model.parameters())

        def train_step(self):
            for _ in range(2):  # accumulation
                self.model(torch.zeros(8, 64, device="cuda")).sum().backward()
            self.optimizer.step()

    def main():
        trainer = Trainer()
        for step in range(300):
            trainer.train_step()
            print("step", step)

    if __name__ == "__main__":
        main()
"""


@dataclass
class Done:
    """As subprocess gives it; most cases run in this process, which has torch loaded already."""

    returncode: int
    stdout: str
    stderr: str


Estimate = Callable[..., Done]
Answer = Callable[..., dict[str, Any]]


@contextlib.contextmanager
def the_environment_stays() -> Iterator[None]:
    """--world-size, launchers and scripts change it, and what a later test starts inherits it."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def estimate(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Estimate:
    def run(*args: str, env: dict[str, str] | None = None) -> Done:
        with monkeypatch.context() as patch, the_environment_stays():
            patch.chdir(folder)
            patch.setattr(sys, "argv", sys.argv)
            patch.setattr(sys, "path", [str(folder), *sys.path])
            for name in ("__main__", "helper", "train"):
                patch.setitem(sys.modules, name, sys.modules.get(name, sys.modules[__name__]))
            for name in ("helper", "train"):
                del sys.modules[name]
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            capfd.readouterr()
            try:
                status = _estimate_script.main(list(args))
            except SystemExit as end:
                status = int(end.code or 0)
            sys.modules.pop("helper", None)
            sys.modules.pop("train", None)
        out, err = capfd.readouterr()
        return Done(status, out, err)

    return run


@pytest.fixture
def answer(estimate: Estimate) -> Answer:
    def ask(*args: str, env: dict[str, str] | None = None) -> dict[str, Any]:
        own, rest = list(args), []
        if "--" in own:
            split = own.index("--")
            own, rest = own[:split], own[split:]
        done = estimate(*own, "--json", "-", *rest, env=env)
        assert done.returncode in (0, 3), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return ask


def write(folder: Path, name: str, source: str) -> None:
    (folder / name).write_text(textwrap.dedent(source))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "train.py", TRAIN)
    write(tmp_path, "helper.py", "width = 1024\n")
    return tmp_path
