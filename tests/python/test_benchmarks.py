"""The benchmarks measure what they are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OVERHEAD = Path(__file__).parents[2] / "benchmarks" / "overhead.py"
WORKLOADS = """
import torch


class Workload:
    def __init__(self, device):
        self.model = torch.nn.Linear(2, 2).to(device)
        self.opt = torch.optim.SGD(self.model.parameters())

    def step(self):
        self.model(torch.ones(1, 2)).sum().backward()
        self.opt.step()


W = {"small": Workload, "smaller": Workload}
"""


def overhead(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    file = folder / "workloads.py"
    file.write_text(WORKLOADS)
    command = [sys.executable, str(OVERHEAD), *args, "--device", "cpu", "--ways", "nothing"]
    command = [word.replace("FILE", str(file)) for word in command]
    return subprocess.run(
        [*command, "--pairs", "1", "--steps", "1"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("names", "measured"), [([], ["small", "smaller"]), (["smaller"], ["smaller"])]
)
def test_without_names_all_workloads_of_the_file_are_measured(
    tmp_path: Path, names: list[str], measured: list[str]
) -> None:
    done = overhead(tmp_path, "--workloads", "FILE", *names)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ")[0] for line in done.stdout.splitlines() if "| nothing |" in line]
    assert rows == [f"| {name}" for name in measured]


def test_a_name_that_the_file_lacks_is_refused_with_those_it_has(tmp_path: Path) -> None:
    done = overhead(tmp_path, "--workloads", "FILE", "large")
    assert done.returncode == 2
    assert "there is no workload 'large'; there are: small, smaller" in done.stderr
    assert overhead(tmp_path, "small").returncode == 2  # of which file?
