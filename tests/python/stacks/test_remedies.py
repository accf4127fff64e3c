"""What would have helped a script that ran out of memory: each is tried before it is said."""

import argparse
import json
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import peakline
from peakline import _remedies
from peakline._remedies import Change, LayersMet
from peakline._script_sizes import Size
from peakline.simulate import simulate

SCRIPT = """
import argparse
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(8))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4096)
parser.add_argument("--eval-batch-size", type=int, default=8)
args = parser.parse_args()
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.ones(args.batch_size, 256, device="cuda")
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


ENOUGH = "600"  # seconds, on a machine however slow


def estimate(folder, *words: str, advice: str = ENOUGH) -> tuple[int, dict, str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "peakline", "estimate", "train.py", "--memory", "200MiB"]
    done = subprocess.run(
        [*command, "--json", "answer.json", "--advice", advice, *words],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done.returncode, json.loads((folder / "answer.json").read_text()), done.stdout


def test_a_smaller_batch_and_checkpointing_are_said_and_followed_they_fit(tmp_path):
    status, answer, printed = estimate(tmp_path)
    assert status == 3
    batch, layers = answer["oom"]["would_help"]
    assert batch.startswith("--batch_size 1024 instead of 4096 fits: it reserves ")
    assert layers.startswith("Checkpointing 8 layers of Net (layers.{0..7}) fits: it reserves ")
    assert batch in " ".join(printed.split())
    assert estimate(tmp_path, "--", "--batch_size", "1024")[0] == 0
    plan = {"schema_version": 1, "activations": [{"modules": ["layers.{0..7}"]}]}
    plan["activations"][0]["policy"] = "recompute"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert estimate(tmp_path, "--plan", "plan.json")[0] == 0


def test_nothing_is_tried_when_told(tmp_path):
    status, answer, _ = estimate(tmp_path, advice="0")
    assert status == 3
    assert answer["oom"]["would_help"] == []


def passing(change: Change, seconds: float) -> dict:
    return {"fits": True, "gpu_fits": True, "partial": False, "peak_reserved": 1 << 20}


def failing(change: Change, seconds: float) -> dict:
    return {**passing(change, seconds), "fits": False}


def test_what_does_not_pass_is_not_said():
    plan = LayersMet()
    plan.met(nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))))
    batch = Size("batch-size", 64)
    assert len(_remedies.proven(passing, batch, plan.checkpointed(), 60)) == 2
    for attempt in (failing, lambda change, seconds: None):
        assert _remedies.proven(attempt, batch, plan.checkpointed(), 60) == []
    assert _remedies.proven(passing, batch, plan.checkpointed(), 0) == []


def test_that_the_time_was_too_short_is_said():
    def slow(change: Change, seconds: float) -> None:
        time.sleep(seconds)

    batch = Size("b", 8, ["-b", "@b"])
    (said,) = _remedies.proven(slow, batch, None, 0.3)
    assert said == "0.3 s were too short to try everything; --advice 1.2 takes longer."


def test_the_largest_half_that_passes_is_said():
    def attempt(change: Change, seconds: float) -> dict:
        return (passing if int(change.words[1]) <= 8 else failing)(change, seconds)

    (said,) = _remedies.proven(attempt, Size("b", 33, ["-b", "@b"]), None, 60)
    assert said.startswith("-b 8 instead of 33 fits")


MiB = 1 << 20


def explained(folder, program, **options) -> str:
    page = folder / "oom.html"
    with (
        peakline.virtual_gpu(**options),
        pytest.raises(torch.OutOfMemoryError),
        peakline.explain_oom(page),
    ):
        program("cuda")
    return page.read_text()


def take_too_much(device: str) -> None:
    torch.empty(600 * MiB, dtype=torch.uint8, device=device)


def test_functions_of_cpp_have_no_line_on_the_page(tmp_path):
    page = explained(tmp_path, take_too_much, memory="512MiB", cpp=True)
    assert re.search(r"<code>[^<]*libtorch[^<:]*[.]so</code> at::_ops::", page)


def cut_up(device: str) -> None:
    """A step's cache is cut up by a small block that stays, so it cannot be given back."""
    weight = torch.ones(MiB, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones_like(weight)
    large = torch.empty(200 * MiB, dtype=torch.uint8, device=device)
    del large
    optimizer.step()
    kept = torch.empty(16 * MiB, dtype=torch.uint8, device=device)
    larger = torch.empty(300 * MiB, dtype=torch.uint8, device=device)
    del kept, larger


def test_a_freed_cache_is_said_where_it_helps_and_followed_it_does(tmp_path):
    page = explained(tmp_path, cut_up, memory="400MiB")
    assert "torch.cuda.empty_cache() after each step lets this allocation pass." in page
    with peakline.virtual_gpu(memory="400MiB") as run:
        run.on_step(lambda run: torch.cuda.empty_cache())
        cut_up("cuda")


def test_a_freed_cache_is_not_said_where_it_does_not_help(tmp_path):
    with peakline.virtual_gpu(memory="512MiB") as run:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(600 * MiB, dtype=torch.uint8, device="cuda")
        assert not simulate(run, empty_cache=True).fits


class Cycle:
    def __init__(self, device: str) -> None:
        self.me = self
        self.kept = torch.empty(100 * MiB, dtype=torch.uint8, device=device)


def leave_garbage(device: str) -> None:
    for _ in range(3):
        Cycle(device)
    torch.empty(400 * MiB, dtype=torch.uint8, device=device)


def test_garbage_in_cycles_is_measured(tmp_path, no_collector):
    page = explained(tmp_path, leave_garbage, memory="512MiB")
    assert "300.0 MiB were garbage that only cycles of references kept alive" in page


def test_run_tries_on_a_gpu_like_the_real_one(tmp_path, monkeypatch, capsys):
    from peakline._run_script import _Again

    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    args = argparse.Namespace(script="train.py", module=None, script_args=[], advice=float(ENOUGH))
    again = _Again(args)
    again.batch._sizes.append(Size("batch_size", 4096))
    facts = SimpleNamespace(device="cuda:0", limit=200 * MiB, failure={"step": 1})
    (said,) = again.advice(facts)
    assert said.startswith("--batch_size 1024 instead of 4096 fits")
    assert "trying a smaller --batch_size, for 600 s at most" in capsys.readouterr().err
    assert again.advice(SimpleNamespace(**vars(facts) | {"device": "cpu"})) == []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Nobody's GPU")
    assert again.advice(facts) == []


def test_what_is_tried_comes_past_the_step_that_failed(tmp_path, monkeypatch):
    from peakline._run_script import _Again

    leaks = SCRIPT.replace("range(3)", "range(9)")
    leaks = leaks.replace("for _ in range(9)", "kept = []\nfor _ in range(9)")
    leaks = leaks.replace("    optimizer.step()", "    kept.append(x * 1)\n    optimizer.step()")
    (tmp_path / "train.py").write_text(leaks)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    args = argparse.Namespace(script="train.py", module=None, script_args=[], advice=float(ENOUGH))
    again = _Again(args)
    again.batch._sizes.append(Size("batch_size", 4096))

    def advice(step: int) -> str:
        facts = SimpleNamespace(device="cuda:0", limit=200 * MiB, failure={"step": step})
        return "".join(again.advice(facts))

    assert advice(1).startswith("--batch_size 1024 instead of 4096 fits")
    assert advice(9) != advice(1)
