"""accelerate's and Lightning's own searches for a batch size, where they are installed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from estimate_support import write

ACCELERATED = """
    import torch
    from accelerate import Accelerator
    from accelerate.utils import find_executable_batch_size
    from torch import nn

    accelerator = Accelerator()

    @find_executable_batch_size(starting_batch_size=32768)
    def train(batch):
        accelerator.free_memory()
        model = nn.Linear(1024, 1024)
        optimizer = torch.optim.SGD(model.parameters())
        model, optimizer = accelerator.prepare(model, optimizer)
        for _ in range(10):
            rows = torch.zeros(batch, 1024, device=accelerator.device)
            accelerator.backward(model(rows).pow(2).sum())
            optimizer.step()
            optimizer.zero_grad()

    train()
"""
LIGHTENED = """
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.tuner import Tuner
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.batch_size = 256
            self.layer = nn.Linear(256, 4096)

        def training_step(self, batch, number):
            return self.layer(batch[0]).pow(2).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters())

        def train_dataloader(self):
            return DataLoader(TensorDataset(torch.zeros(40000, 256)), self.batch_size)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=1, accelerator="gpu", devices=1, **quiet)
    model = Model()
    Tuner(trainer).scale_batch_size(model, mode="power")
    trainer.fit(model)
"""


def missing(package: str) -> pytest.MarkDecorator:
    is_missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(is_missing, reason=f"{package} is not installed")


def answer(folder: Path, source: str) -> dict[str, Any]:
    """In a process of its own: these libraries change much of the one they are imported into."""
    write(folder, "finds.py", source)
    command = [sys.executable, "-m", "peakline._estimate_script", "finds.py", "--json", "-"]
    done = subprocess.run(
        [*command, "--memory", "256MiB"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@missing("accelerate")
def test_find_executable_batch_size_of_accelerate_is_answered(tmp_path: Path) -> None:
    found = answer(tmp_path, ACCELERATED)
    said = [line for line in found["warnings"] if line.startswith("find_executable_batch_size")]
    assert len(said) == 1
    batch = int(said[0].rpartition(" ")[2])
    assert 4096 < batch < 32768


@missing("lightning")
def test_the_batch_size_finder_of_lightning_is_answered(tmp_path: Path) -> None:
    found = answer(tmp_path, LIGHTENED)
    # Of 4096 rows the result, its square and their gradients take 64 MiB each, besides workspaces.
    assert "Lightning's batch-size finder went on with a batch of 2048" in found["warnings"]
    assert found["steps_completed"] == 3
