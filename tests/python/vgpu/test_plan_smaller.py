"""`peakline plan` where nothing fits: it says what would, and that is so."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from estimate_support import write

import peakline

MODEL = """
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
                            for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    for step in range(10):
        model(torch.randn(512 * batch_size, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
PARSED = f"""
    import argparse
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    batch_size = parser.parse_args().batch_size
    {MODEL}
"""
# As in nanoGPT: a file that is run over the script's globals sets those that words name.
SET = f"""
    import torch
    from torch import nn

    batch_size = 32
    exec(open("configurator.py").read())
    {MODEL}
"""
CONFIGURATOR = """
    import sys
    for word in sys.argv[1:]:
        assert word.startswith("--") and "=" in word, word
        name, value = word[2:].split("=")
        globals()[name] = int(value)
"""
LITTLE = ("--levers", "optimizer.implementation", "--jobs", "1")


def shell(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )


def plan(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return shell(folder, "peakline._plan_script", "train.py", *words)


@pytest.mark.parametrize("script", [PARSED, SET], ids=["argparse", "globals"])
def test_a_smaller_batch_is_proposed_that_fits_and_the_command_finds_the_fastest(
    script: str, folder: Path
) -> None:
    write(folder, "train.py", script)
    write(folder, "configurator.py", CONFIGURATOR)
    done = plan(folder, "--memory", "160MiB", *LITTLE)
    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Nothing fits 160.0 MiB")
    name = "batch-size" if script is PARSED else "batch_size"
    head = lines.index(f"What would fit with a smaller {name}, which is 32 now")
    row, command = lines[head + 2], lines[lines.index("To find the fastest") + 1].strip()
    value = int(row.split(name)[1].split(";")[0])
    assert 1 <= value < 32
    words = shlex.split(command)
    assert words[:2] == ["peakline", "plan"]
    given = [f"--{name}={value}"] if script is SET else [f"--{name}", str(value)]
    shown = shell(
        folder, "peakline._estimate_script", "train.py", "--memory", "160MiB", "--", *given
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    again = shell(folder, "peakline._plan_script", *words[2:])
    assert again.returncode == 0, again.stdout + again.stderr


def test_not_even_the_smallest_batch_and_no_argument_at_all(folder: Path) -> None:
    write(folder, "train.py", PARSED)
    done = plan(folder, "--memory", "12MiB", *LITTLE)
    assert done.returncode == 3
    assert "Not even batch-size 1 would fit: it is " in done.stdout
    write(
        folder, "train.py", PARSED.replace("--batch-size", "--rows").replace(".batch_size", ".rows")
    )
    done = plan(folder, "--memory", "12MiB", *LITTLE)
    assert done.returncode == 3
    assert "--vary NAME=A..B" in done.stdout


def test_a_function_is_told_which_of_its_arguments_would_do() -> None:
    def train(batch: int = 32) -> None:
        scope: dict[str, Any] = {"batch_size": batch}
        exec(f"import torch\nfrom torch import nn\n{_flat(MODEL)}", scope)

    found = peakline.plan(train, memory="160MiB", levers=["optimizer.implementation"])
    assert not found.fits
    assert found.smaller is not None
    assert (found.smaller["argument"], found.smaller["now"]) == ("batch", 32)
    largest = found.smaller["plans"][0]
    assert largest["fits"]
    value = largest["plan"]["arguments"]["batch"]
    with peakline.virtual_gpu("h200", memory="160MiB"):
        train(value)


def _flat(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines())
