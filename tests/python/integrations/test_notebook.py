"""Runs in a notebook: what is shown, and the magic."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline

CELL = """
import torch
layer = torch.nn.Linear(256, 256, device=device)
for _ in range(2):
    layer(torch.randn(64, 256, device=device)).sum().backward()
"""


def train() -> None:
    model = nn.Linear(256, 256, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(64, 256, device="cuda")).sum().backward()
        optimizer.step()


def test_a_run_is_shown_with_its_timeline() -> None:
    with peakline.virtual_gpu() as run:
        train()
    shown = run._repr_html_()
    drawing, text = shown.split("</svg>")
    svg = xml.fromstring(drawing + "</svg>")
    titles = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}title")}
    assert {"memory over the run", "Parameter", "Optstate", "reserved"} <= titles
    assert "Peak allocated" in text
    assert "<script" not in shown


def test_a_run_without_memory_is_shown_as_text() -> None:
    with peakline.track() as run:
        pass
    assert run._repr_html_().startswith("<pre>")


def test_names_from_a_program_are_escaped() -> None:
    class Evil(nn.Linear):
        pass

    Evil.__name__ = Evil.__qualname__ = "<b>Evil</b>"
    with peakline.track() as run:
        Evil(64, 64)(torch.randn(8, 64)).sum().backward()
    assert "<b>" not in run._repr_html_()


def test_a_simulation_is_shown_as_its_text() -> None:
    with peakline.virtual_gpu() as run:
        train()
    assert peakline.simulate(run)._repr_html_().startswith("<pre>")


@pytest.fixture
def shell() -> Any:
    testing = pytest.importorskip("IPython.testing.globalipapp", reason="IPython is not installed")
    made = testing.get_ipython() or testing.start_ipython()
    made.run_line_magic("load_ext", "peakline")
    return made


def test_the_magic_tracks_its_cell(shell: Any, tmp_path: Path) -> None:
    shell.user_ns["device"] = "cpu"
    line = f"--name mine --save {tmp_path / 'cell.peak'}"
    run = shell.run_cell_magic("peakline", line, CELL)
    assert shell.user_ns["mine"] is run
    assert run.peak("cpu").by_category["Parameter"] == 4 * (256 * 256 + 256)
    assert peakline.load(tmp_path / "cell.peak").peak("cpu").bytes == run.peak("cpu").bytes


def test_the_magic_runs_its_cell_on_a_virtual_gpu(shell: Any) -> None:
    shell.user_ns["device"] = "cuda"
    run = shell.run_cell_magic("peakline", "--gpu a100-80 --memory 4GiB", CELL)
    assert run.devices[0] == "cuda:0"
    assert not torch.cuda.is_available() or torch.version.cuda


def test_a_failing_cell_ends_the_tracking(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.user_ns["device"] = "cpu"
    shell.run_cell_magic("peakline", "", "kept = __import__('torch').ones(9)\n1 / 0")
    assert "ZeroDivisionError" in capsys.readouterr().out
    with peakline.track():
        pass


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--gpu rtx9999", "rtx9999"),
        ("--memory 4GiB", "name one with --gpu"),
        ("--colour red", "unrecognized arguments"),
    ],
)
def test_a_wrong_line_is_one_sentence(
    shell: Any, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert shell.run_cell_magic("peakline", line, "1") is None
    out = capsys.readouterr().out
    assert said in out
    assert "Traceback" not in out


def test_a_cell_that_is_run_again_starts_a_new_virtual_gpu(shell: Any) -> None:
    cell = "gpu = peakline.virtual_gpu(); run = gpu.start(); x = torch.ones(1024, device='cuda')"
    shell.run_cell("import peakline, torch")
    try:
        first = shell.run_cell(cell)
        second = shell.run_cell(cell)
        assert first.success
        assert second.success
        assert shell.run_cell("run.peak('cuda:0').bytes").result == 4096
    finally:
        shell.run_cell("gpu.stop()")
    assert not torch.cuda.is_available()
