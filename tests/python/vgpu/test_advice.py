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
    (saving,) = plain["advice"]
    setting, _, value = saving["command"].partition("=")
    assert setting == "PYTORCH_ALLOC_CONF"
    assert saving["peak_reserved_before"] == plain["peak_reserved"]
    grown = answer("holes.py", env={setting: value})
    assert saving["peak_reserved_after"] == grown["peak_reserved"] < 0.99 * plain["peak_reserved"]


def test_the_text_the_recording_and_the_report_say_it(folder: Path, estimate: Estimate) -> None:
    script(folder)
    done = estimate("adam.py", "-o", "run.peak")
    assert "What would need less, by simulation\n  - fused AdamW saves" in done.stdout
    program = Path(sysconfig.get_path("scripts")) / "peakline"
    shown = subprocess.run(
        [program, "show", "run.peak"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "    torch.optim.AdamW(..., fused=True)\n" in shown.stdout
    assert str(peakline.load(folder / "run.peak")).endswith("(..., fused=True)")
    subprocess.run([program, "report", "run.peak"], cwd=folder, check=True, capture_output=True)
    assert "fused AdamW" in (folder / "run.html").read_text()


def test_a_setting_that_is_on_is_not_advised(folder: Path, answer: Answer) -> None:
    script(folder)
    found = answer("adam.py", env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert "expandable_segments" not in json.dumps(found["advice"])
