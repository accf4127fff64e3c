"""`peakline plan`, on a script that tests write. All searches share what is remembered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from estimate_support import Done, write

TRAIN = """
    import argparse
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--fail", action="store_true")
    args = parser.parse_args()

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(6))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    if args.fail:
        raise SystemExit("no such data")
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10):
        model(torch.randn(args.rows, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
MIB = 2**20
ALIKE = 0.998  # plans of which the fastest is no faster than this are as fast


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write(folder, "train.py", TRAIN)

    def run(self, *args: str, command: str = "_plan_script") -> Done:
        done = subprocess.run(
            [sys.executable, "-m", f"peakline.{command}", *args],
            cwd=self.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")},
            capture_output=True,
            text=True,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def plan(self, memory: int, *more: str) -> dict[str, Any]:
        done = self.run("train.py", "--memory", str(memory), "--json", "-", *more)
        assert done.returncode in (0, 3), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if found["fits"] else 3)
        return found


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("plan"))


@pytest.fixture(scope="module")
def base(shell: Shell) -> dict[str, Any]:
    return shell.plan(64 << 30)


def test_a_script_that_fits_still_hears_what_is_faster(base: dict[str, Any]) -> None:
    assert base["fits"]
    assert base["short_by"] == 0
    assert base["plans"][0]["fits"]
    speeds = [one["throughput"] for one in base["plans"] if one["fits"]]
    assert base["plans"][base["chosen"]]["throughput"] >= max(speeds) * ALIKE
    kinds = {change for one in base["plans"] for change in one["changes"]}
    assert {"fused optimizer", "optimizer in backward", "optimizer state on the host"} <= kinds
    assert any(change.startswith("recompute layers.{0..5}") for change in kinds)


def test_a_smaller_budget_never_gives_a_higher_peak(shell: Shell, base: dict[str, Any]) -> None:
    peaks = sorted({one["peak_reserved"] for one in base["plans"]})
    before = 0
    for budget in [base["floor"] - MIB, base["floor"], *peaks[5 :: max(1, len(peaks) // 4)]]:
        found = shell.plan(budget)
        assert found["remembered"] == len(base["plans"]) + len(base["cannot"])
        if budget < base["floor"]:
            assert not found["fits"]
            assert found["chosen"] is None
            assert (found["floor"], found["short_by"]) == (base["floor"], MIB)
            continue
        chosen = found["plans"][found["chosen"]]
        assert before <= chosen["peak_reserved"] <= budget
        assert found["peak_reserved"] <= budget  # seen again, under the limit
        assert found["oom"] is None
        before = chosen["peak_reserved"]


def test_the_chosen_plan_is_written_and_estimates_to_the_same(
    shell: Shell, base: dict[str, Any]
) -> None:
    on_gpu = [one for one in base["plans"] if "optimizer state on the host" not in one["changes"]]
    plain = [one["peak_reserved"] for one in on_gpu if "activations" not in one["plan"]]
    middle = min(plain) - MIB
    done = shell.run("train.py", "--memory", f"{middle}", "-o", "p.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"It fits {middle / MIB:.1f} MiB on NVIDIA H200 with: ")
    assert 'peakline.checkpoint(model, "p.json"' in done.stdout
    assert "not measurements" in done.stdout
    plan = json.loads((shell.folder / "p.json").read_text())
    flags = ["train.py", "--memory", str(middle), "--plan", "p.json", "--json", "-"]
    again = shell.run(*flags, command="_estimate_script")
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    assert answer["peak_reserved"] == plan["about"]["peak_reserved"] <= middle
    assert answer["step_ms"] == plan["about"]["step_ms"]


EITHER = """
    import argparse
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_rows", type=int, default=8)
    rows = parser.parse_args().batch_rows
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.drop, self.down = nn.Linear(64, 256), nn.Dropout(0.2), nn.Linear(256, 64)

        def forward(self, x):
            return x + self.down(self.drop(torch.nn.functional.gelu(self.up(x))))

    model = nn.Sequential(*(Block() for _ in range(4))).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    # here
    for step in range(3):
        loss = model(torch.randn(rows, 64, device=device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cpu":
            print(loss.item())
"""


def test_lines_that_are_pasted_train_the_same(shell: Shell) -> None:
    write(shell.folder, "either.py", EITHER)
    flags = ["--levers", "activations,optimizer.implementation", "-o", "either.json"]
    flags += ["--vary", "rows=16384,32768", "--", "--batch_rows", "@rows"]
    done = shell.run("either.py", "--memory", "190MiB", *flags)
    assert done.returncode == 0, done.stderr
    told = done.stdout.partition("\nTo have it\n")[2].partition("\n\n")[0]
    lines = [line.removeprefix("  ") for line in told.splitlines()]
    assert lines[0].startswith("# with the script's arguments: --batch_rows ")
    assert lines[-1].startswith("# proof: peakline estimate either.py --memory 190MiB --plan")
    assert 'peakline.checkpoint(model, "either.json"' in told
    assert "recompute" in done.stdout.splitlines()[0]
    text = (shell.folder / "either.py").read_text()
    pasted = text.replace("# here", told.replace("\n  ", "\n").removeprefix("  "))
    (shell.folder / "pasted.py").write_text(pasted)
    losses = []
    for script in ("either.py", "pasted.py"):
        command = [sys.executable, script]
        ran = subprocess.run(command, cwd=shell.folder, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        losses.append([float(line) for line in ran.stdout.split()])
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)  # fused sums in another order


def test_the_answer_does_not_call_a_value_that_was_given_the_script_as_it_is(shell: Shell) -> None:
    flags = ["--levers", "optimizer.implementation", "--vary", "rows=512,2048"]
    done = shell.run("train.py", "--memory", "400MiB", *flags)
    assert "; rows 512 alone " in done.stdout.splitlines()[1]
    assert "as it is" not in done.stdout
    assert "changed nothing" not in done.stdout
    none = shell.run("train.py", "--memory", "64MiB", *flags)
    assert none.stdout.splitlines()[2].startswith("rows 512 alone reserves ")


def test_an_argument_that_the_script_does_not_use_is_named(shell: Shell) -> None:
    text = (shell.folder / "train.py").read_text()
    unused = 'parser.add_argument("--unused", type=int)\nargs = '
    (shell.folder / "deaf.py").write_text(text.replace("args = ", unused))
    flags = ["--levers", "optimizer.implementation", "--vary", "unused=1,2"]
    done = shell.run("deaf.py", "--memory", "4GiB", *flags)
    assert "\nunused changed nothing: the script seems to make no use of it.\n" in done.stdout


def test_nothing_fits_says_by_how_much_and_the_floor(shell: Shell, base: dict[str, Any]) -> None:
    done = shell.run("train.py", "--memory", "64MiB", "-o", "none.json")
    assert done.returncode == 3
    floor = base["floor"] / MIB
    first, second = done.stdout.splitlines()[:2]
    assert first == f"Nothing fits 64.00 MiB on NVIDIA H200: it is {floor - 64:.1f} MiB short."
    assert second.startswith(f"The least that was found needs {floor:.1f} MiB: ")
    assert not (shell.folder / "none.json").exists()


def test_arguments_of_the_script_vary(shell: Shell) -> None:
    found = shell.plan(
        400 * MIB, "--levers", "optimizer.implementation", "--vary", "rows=512..2048"
    )
    rows = {one["plan"]["arguments"]["rows"] for one in found["plans"]}
    assert rows == {512, 768, 1024, 1536, 2048}
    chosen = found["plans"][found["chosen"]]
    fitting = [one for one in found["plans"] if one["fits"]]
    assert chosen["throughput"] >= ALIKE * max(one["throughput"] for one in fitting)
    assert chosen["command"].endswith("--memory 400MiB --plan plan.json")


def test_a_script_that_fails_is_shown_to_fail(shell: Shell) -> None:
    done = shell.run("train.py", "--memory", "1GiB", "--", "--fail")
    assert done.returncode == 1
    assert "no such data" in done.stderr
    assert done.stderr.endswith("peakline: the script failed, so nothing can be planned\n")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["train.py", "--levers", "magic"], "there is no lever 'magic'"),
        (["train.py", "--on", "slurm"], "--on takes dask:ADDRESS or ray"),
        (["train.py", "--jobs", "0"], "--jobs takes a number from 1"),
        (["train.py", "--memory", "24"], "did you mean 24GiB?"),
        (["train.py", "--vary", "rows=a"], "takes NAME=A..B"),
        (["train.py", "--curve", "rows=1,2"], "are for `estimate`"),
        (["train.py", "--vary", "rows=4..2"], "rows goes from 4 to 2, which is nothing"),
        (["train.py", "--bogus"], "unrecognized arguments: --bogus"),
        ([], "give either a script or -m MODULE"),
    ],
)
def test_bad_usage_is_one_sentence(shell: Shell, flags: list[str], sentence: str) -> None:
    done = shell.run(*flags)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert "example: peakline plan train.py" in done.stderr


@pytest.mark.parametrize(
    ("script", "why"), [("nowhere.py", "there is no such file"), (".", "it is a folder")]
)
def test_a_script_that_cannot_be_read_is_named(shell: Shell, script: str, why: str) -> None:
    done = shell.run(script, "--memory", "1GiB")
    assert (done.returncode, done.stderr) == (2, f"peakline: cannot read '{script}': {why}\n")
