"""`peakline estimate` of scripts that leave their loop to a trainer."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

LIGHTNING = """
    import lightning.pytorch as lightning
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 64))
            self.scale = nn.Parameter(torch.ones(1024))

        def training_step(self, batch, index):
            return self.net(batch).square().mean() * self.scale.sum()

        def validation_step(self, batch, index):
            self.net(batch)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_epochs=2, num_sanity_val_steps=0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    data = torch.ones(4096, 64)
    trainer.fit(Lit(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=4096))
"""
HUGGING_FACE = """
    import torch
    from torch import nn
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 64))

        def forward(self, x, labels=None):
            y = self.net(x)
            return {"loss": y.square().mean(), "logits": y}

    data = [{"x": torch.ones(64), "labels": torch.ones(1)}] * 4096
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=8, per_device_eval_batch_size=2048, report_to="none",
        eval_strategy="steps", eval_steps=500, disable_tqdm=True, save_strategy="no",
    )
    Trainer(Model(), arguments, train_dataset=data, eval_dataset=data).train()
"""


def estimate(folder: Path, source: str, *flags: str) -> dict[str, Any]:
    (folder / "train.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "peakline", "estimate", "train.py", "--json", "-", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_modules_of_a_lightning_module_are_named_below_it_and_have_their_parameters(
    tmp_path: Path,
) -> None:
    pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    found = estimate(tmp_path, LIGHTNING)
    held = {row["path"]: row["by_category"].get("Parameter") for row in found["modules"]}
    first = 4 * (64 * 1024 + 1024)
    assert held["Lit.net.0"] == first
    assert held["Lit"] > 2 * first
    assert "Sequential" not in held


@pytest.mark.parametrize(
    ("library", "source"), [("lightning.pytorch", LIGHTNING), ("transformers", HUGGING_FACE)]
)
def test_a_trainer_that_counts_to_its_next_evaluation_evaluates_after_the_steps(
    tmp_path: Path, library: str, source: str
) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    found = estimate(tmp_path, source)
    assert not [line for line in found["warnings"] if "not seen" in line]
    rows = 4096 if library == "lightning.pytorch" else 2048
    assert found["peak_allocated"] > rows * 1024 * 4  # an evaluation's batch, 1024 wide inside
