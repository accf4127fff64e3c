"""What `estimate`, `show` and the report say without being asked, and that it is so."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

from estimate_support import Answer, Estimate, write

import peakline

TRAIN = """
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), FLAGS)
    for step in range(5):
        model(torch.randn(8, 2048, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def script(folder: Path, flags: str = "lr=1e-3") -> None:
    write(folder, "adam.py", TRAIN.replace("FLAGS", flags))


def test_what_fusing_saves_is_what_a_fused_optimizer_reserves_less(
    folder: Path, answer: Answer
) -> None:
    script(folder)
    plain = answer("adam.py")
    (saving,) = [one for one in plain["advice"] if one["what"] == "fused AdamW"]
    assert saving["command"] == "torch.optim.AdamW(..., fused=True)"
    assert saving["peak_reserved_before"] == plain["peak_reserved"]
    script(folder, "lr=1e-3, fused=True")
    fused = answer("adam.py")
    assert saving["peak_reserved_after"] == fused["peak_reserved"] < plain["peak_reserved"]
    assert not [one for one in fused["advice"] if "fused" in one["what"]]


HOLES = """
    import torch
    from torch import nn

    layers = [nn.Linear(1024, 1024 * (1 + i % 3)) for i in range(6)]
    model = nn.Sequential(*(nn.Sequential(layer, nn.GELU(), nn.Linear(layer.out_features, 1024))
                            for layer in layers)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(6):
        rows = 20_000 if step % 2 else 10_000
        model(torch.randn(rows, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_what_segments_that_grow_save_is_what_a_run_with_them_reserves_less(
    folder: Path, answer: Answer
) -> None:
    write(folder, "holes.py", HOLES)
    plain = answer("holes.py")
    (saving,) = [one for one in plain["advice"] if "expandable" in one["what"]]
    setting, _, value = saving["command"].partition("=")
    assert setting == "PYTORCH_ALLOC_CONF"
    assert saving["peak_reserved_before"] == plain["peak_reserved"]
    grown = answer("holes.py", env={setting: value})
    assert saving["peak_reserved_after"] == grown["peak_reserved"] < 0.99 * plain["peak_reserved"]


def test_the_text_the_recording_and_the_report_say_it(folder: Path, estimate: Estimate) -> None:
    script(folder)
    done = estimate("adam.py", "-o", "run.peak")
    _, _, listed = done.stdout.partition("What would need less, by simulation\n")
    assert listed.startswith("  - the optimizer in backward saves")
    assert "  - fused AdamW saves" in listed
    program = Path(sysconfig.get_path("scripts")) / "peakline"
    shown = subprocess.run(
        [program, "show", "run.peak"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "    torch.optim.AdamW(..., fused=True)\n" in shown.stdout
    assert "    torch.optim.AdamW(..., fused=True)" in str(peakline.load(folder / "run.peak"))
    subprocess.run([program, "report", "run.peak"], cwd=folder, check=True, capture_output=True)
    assert "fused AdamW" in (folder / "run.html").read_text()


def test_a_setting_that_is_on_is_not_advised(folder: Path, answer: Answer) -> None:
    script(folder)
    found = answer("adam.py", env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert "expandable_segments" not in json.dumps(found["advice"])


LAYERS = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(512)
            self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    model = nn.Sequential(*(Block() for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(5):
        BEFORE
        loss = model(torch.randn(ROWS, 512, device="cuda")).sum()
        MIDDLE
        loss.backward()
        optimizer.step()
"""


def layers(rows: int, before: str = "optimizer.zero_grad()", middle: str = "pass") -> str:
    return LAYERS.replace("ROWS", str(rows)).replace("BEFORE", before).replace("MIDDLE", middle)


def test_what_recomputing_layers_saves_is_close_to_what_the_plan_that_it_names_does(
    folder: Path, answer: Answer
) -> None:
    write(folder, "layers.py", layers(8192))
    plain = answer("layers.py")
    saving = plain["advice"][0]
    assert saving["what"] == "recomputing {0..7}"
    command = saving["command"]
    plan = json.loads(command[command.index("{") : command.rindex("}") + 1])
    (folder / "plan.json").write_text(json.dumps(plan))
    planned = answer("layers.py", "--plan", "plan.json")
    assert planned["peak_reserved"] < 0.7 * plain["peak_reserved"]
    off = abs(saving["peak_reserved_after"] - planned["peak_reserved"])
    assert off < 0.06 * planned["peak_reserved"]
    assert not [one for one in planned["advice"] if "recomputing" in one["what"]]


def test_what_the_optimizer_in_backward_saves_is_close_to_what_the_plan_does(
    folder: Path, answer: Answer
) -> None:
    write(folder, "layers.py", layers(64))
    plain = answer("layers.py")
    (saving,) = [one for one in plain["advice"] if one["what"] == "the optimizer in backward"]
    (folder / "plan.json").write_text('{"schema_version": 1, "optimizer": {"in_backward": true}}')
    planned = answer("layers.py", "--plan", "plan.json")
    off = abs(saving["peak_reserved_after"] - planned["peak_reserved"])
    assert off < 0.06 * plain["peak_reserved"]


def test_what_zeroing_before_forward_saves_is_what_a_script_that_does_so_reserves_less(
    folder: Path, answer: Answer
) -> None:
    write(folder, "layers.py", layers(4096, "pass", "optimizer.zero_grad()"))
    late = answer("layers.py")
    (saving,) = [one for one in late["advice"] if one["what"].startswith("zero_grad()")]
    write(folder, "layers.py", layers(4096))
    early = answer("layers.py")
    assert saving["peak_reserved_after"] == early["peak_reserved"] < late["peak_reserved"]
    assert not [one for one in early["advice"] if one["what"].startswith("zero_grad()")]
