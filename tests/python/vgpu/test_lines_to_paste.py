"""The line that advice and plans give to paste works in the script as it is, wherever it is pasted.

Each program is estimated, the line is put into it where the line says, and what it promised is
compared with the estimate of the program that has it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from estimate_support import Answer, write

BLOCKS = """
    import copy
    import torch
    from torch import nn


    class Block(nn.Module):
        def __init__(self, width=256):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(6))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x


    def batch():
        return torch.randn(16384, 256, device="cuda")


    def train(model, optimizer):
        for step in range(4):
            model(batch()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


"""

PLAIN = """
    net = Net().cuda()
    train(net, torch.optim.AdamW(net.parameters(), fused=True))
"""

IN_A_FUNCTION = """
    def main(unused=None):
        net = nn.Sequential(Net(),
                            nn.Identity()).cuda()
        steps = torch.optim.AdamW(
            net.parameters(), fused=True
        )
        if unused is None:
            train(net, steps)

    main()
"""

# The outermost module is the average's, which the script does not call its model.
EMA = """
    class Average(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.online_model = model
            self.average = copy.deepcopy(model).requires_grad_(False)

    class Trainer:
        def __init__(self, model):
            self.ema = Average(model)
            self.opt = torch.optim.AdamW(model.parameters(), fused=True)

        def train(self):
            train(self.ema.online_model, self.opt)

    def main():
        unet = Net().cuda()
        trainer = Trainer(unet)
        trainer.train()

    main()
"""

AVERAGED = """
    from torch.optim.swa_utils import AveragedModel

    net = Net().cuda()
    average = AveragedModel(net)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    optimizer.register_step_post_hook(lambda *_: average.update_parameters(net))
    train(net, optimizer)
"""

MADE_BY_A_METHOD = """
    class Experiment:
        def setup(self):
            self.net = Net().cuda()
            self.opt = torch.optim.AdamW(self.net.parameters(), fused=True)

        def run(self):
            self.setup()
            train(self.net, self.opt)

    Experiment().run()
"""

DDP = """
    import torch.distributed as dist

    dist.init_process_group("nccl")
    net = Net().cuda()
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    train(net, optimizer)
"""

FSDP2 = """
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl")
    net = Net()
    for layer in net.layers:
        fully_shard(layer)
    fully_shard(net)
    train(net, torch.optim.AdamW(net.parameters(), fused=True))
"""

ACCELERATE = """
    from accelerate import Accelerator

    accelerator = Accelerator()
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    prepared, stepper = accelerator.prepare(net, optimizer)
    for step in range(4):
        accelerator.backward(prepared(batch()).sum())
        stepper.step()
        stepper.zero_grad()
"""

LIGHTNING = """
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, x, index):
            return self.net(x.expand(16384, 256)).sum()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), fused=True)

    data = torch.utils.data.DataLoader(torch.randn(64, 256), batch_size=1)
    trainer = lightning.Trainer(max_steps=4, accelerator="gpu", devices=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False)
    WHAT
"""

PROGRAMS = {
    "plain": PLAIN,
    "in a function": IN_A_FUNCTION,
    "an average around it": EMA,
    "averaged beside it": AVERAGED,
    "made by a method": MADE_BY_A_METHOD,
    "DDP": DDP,
    "accelerate": ACCELERATE,
    "Lightning": LIGHTNING.replace("WHAT", "task = Lit()\n    trainer.fit(task, data)"),
    "Lightning without a name": LIGHTNING.replace("WHAT", "trainer.fit(Lit(), data)"),
}
PLACE = re.compile(
    r"after line (?P<line>\d+) of job\.py"
    r"|at the (?P<end>start|end) of (?P<name>[\w.]+)\(\) in job\.py"
)


def program(folder: Path, text: str) -> str:
    for library in ("accelerate", "lightning"):
        if library in text and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    write(folder, "job.py", textwrap.dedent(BLOCKS) + textwrap.dedent(text))
    return (folder / "job.py").read_text()


def pasted(source: str, place: str, lines: list[str]) -> str:
    """The script with the lines where `place` says, indented as what is there."""
    rows = source.splitlines()
    said = PLACE.search(place)
    assert said, place
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    if said["line"]:
        at = int(said["line"])
        ending = [node for node in nodes if node.end_lineno == at]
        beside = max(ending, key=lambda node: node.col_offset)
    else:
        function = next(one for one in nodes if named(one, nodes) == said["name"])
        assert isinstance(function, ast.FunctionDef)
        beside = function.body[-1 if said["end"] == "end" else 0]
        at = (beside.end_lineno or 0) if said["end"] == "end" else beside.lineno - 1
    indent = " " * beside.col_offset
    return "\n".join([*rows[:at], *(indent + line for line in lines), *rows[at:]]) + "\n"


def named(node: ast.stmt, nodes: list[ast.stmt]) -> str:
    if not isinstance(node, ast.FunctionDef):
        return ""
    around = [one for one in nodes if isinstance(one, ast.ClassDef) and node in one.body]
    return ".".join(one.name for one in [*around, node])


def job_words(text: str) -> list[str]:
    return ["--world-size", "2"] if "init_process_group" in text else []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_of_advice_does_in_the_script_what_it_says(
    folder: Path, answer: Answer, name: str
) -> None:
    source = program(folder, PROGRAMS[name])
    words = job_words(source)
    plain = answer("job.py", *words)
    (saving,) = [one for one in plain["advice"] if one["what"].startswith("recomputing")]
    line, _, place = saving["command"].partition("  # ")
    (folder / "job.py").write_text(pasted(source, place, [line]))
    better = answer("job.py", *words)
    assert better["peak_reserved"] < 0.8 * plain["peak_reserved"]
    off = abs(saving["peak_reserved_after"] - better["peak_reserved"])
    assert off < 0.1 * plain["peak_reserved"]


@pytest.mark.parametrize("text", [PLAIN, IN_A_FUNCTION, EMA, MADE_BY_A_METHOD])
def test_the_line_of_advice_about_the_optimizer_does_in_the_script_what_it_says(
    folder: Path, answer: Answer, text: str
) -> None:
    source = program(folder, text).replace("16384", "16").replace("256", "2048")
    (folder / "job.py").write_text(source)
    plain = answer("job.py")
    (saving,) = [one for one in plain["advice"] if one["what"] == "the optimizer in backward"]
    line, _, place = saving["command"].partition("  # ")
    (folder / "job.py").write_text(pasted(source, place, [line]))
    better = answer("job.py")
    assert better["peak_reserved"] < 0.9 * plain["peak_reserved"]
    assert (
        abs(saving["peak_reserved_after"] - better["peak_reserved"]) < 0.06 * plain["peak_reserved"]
    )


@pytest.mark.parametrize("text", [EMA, DDP, FSDP2], ids=["an average around it", "DDP", "FSDP2"])
def test_the_lines_of_a_plan_do_in_the_script_what_the_plan_says(
    folder: Path, answer: Answer, text: str
) -> None:
    source = program(folder, text)
    words = job_words(source)
    plain = answer("job.py", *words)
    limit = int(0.75 * plain["peak_reserved"])
    options = ["--levers", "activations", "--jobs", "1", "-o", "plan.json", *words]
    said = plan(folder, "job.py", "--memory", str(limit), *options)
    lines = [line.strip() for line in said.partition("To have it\n")[2].splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("# in the script, "))
    (folder / "job.py").write_text(pasted(source, lines[start], lines[start + 1 : start + 3]))
    better = answer("job.py", *words)
    planned = json.loads((folder / "plan.json").read_text())["about"]
    assert better["peak_reserved"] == planned["peak_reserved"] <= limit


def plan(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "peakline._plan_script", *words],
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
