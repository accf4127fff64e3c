"""On a real GPU: allocations have the lines that asked for them, and so has one that fails.

There autograd runs backward on a thread of its own, which has no Python of the program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import peakline
from peakline.run import LineUse, Run

sys.path.append(str(Path(__file__).resolve().parent.parent / "python" / "stacks"))

import site_program

BYTES = site_program.UNIT * 4


def a_hundred_places() -> tuple[site_program.Program, list[LineUse]]:
    """The program of the tests without a GPU, run on one."""
    program = site_program.write()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sites.py")
        path.write_text(program.text)
        code = compile(program.text, str(path), "exec")
        with peakline.track(stacks="all") as run:
            exec(code, {"DEVICE": "cuda", "__name__": "sites"})
            torch.cuda.synchronize()
        rows = [row for row in run.lines(device="cuda:0") if row.place.file == str(path)]
    return program, rows


def test_a_hundred_places_are_each_found_by_their_line() -> None:
    program, rows = a_hundred_places()
    by_line = {row.place.line: row for row in rows if row.called_from is None}
    missed = {
        n: (program.lines[line - 1], by_line.get(line))
        for n, line in program.sites.items()
        if line not in by_line or by_line[line].largest != program.units[n] * BYTES
    }
    assert not missed, missed
    recomputed = {n: by_line[program.sites[n]].allocations for n in program.recomputed}
    assert set(recomputed.values()) == {2}, recomputed  # in forward, and once more in backward


def test_what_backward_allocates_goes_to_the_forward_line() -> None:
    program, rows = a_hundred_places()
    found = {row.place.line: row for row in rows if row.called_from is not None}
    missed = {
        n: (program.lines[line - 1], found.get(line))
        for n, line in program.backward.items()
        if line not in found or found[line].largest != n * BYTES
    }
    assert not missed, missed
    callers = {row.called_from.line for row in found.values() if row.called_from is not None}
    assert callers == {program.backward_line}, callers


class Squares(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x).exp()


def lines_of(run: Run) -> dict[str, int]:
    """Allocations by the text of their line, with "backward of" before those of backward."""
    return {
        ("" if row.called_from is None else "backward of ") + row.place.text: row.allocations
        for row in run.lines(device="cuda:0")
        if row.place.file == __file__
    }


def test_by_default_large_blocks_have_the_lines_of_forward_backward_and_optimizer() -> None:
    steps = 5
    with peakline.track() as run:
        weight = nn.Parameter(torch.ones(1 << 20, device="cuda"))  # 4 MiB
        optimizer = torch.optim.Adam([weight])
        for _ in range(steps):
            y = checkpoint(Squares(), weight, use_reentrant=False)
            (y.tanh() * 2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
    found = lines_of(run)
    # Of checkpointed code each step runs the line twice, and its backward once.
    assert found["return (x * x).exp()"] == 4 * steps, found
    assert found["backward of return (x * x).exp()"] >= steps, found
    assert found["backward of (y.tanh() * 2).sum().backward()"] >= steps, found
    assert found["optimizer.step()"] >= 2, found
    assert run.warnings == [], run.warnings


_RUNS_OUT = """
import torch, peakline

def attend(x, weight):
    return (x * weight).exp()

def main():
    torch.cuda.set_per_process_memory_fraction(2**30 / torch.cuda.mem_get_info()[1])
    weight = torch.ones(1 << 22, device="cuda", requires_grad=True)
    x = torch.ones(1 << 22, device="cuda")
    for _ in range({times}):
        x = attend(x, weight)
    x.sum().backward()

with peakline.explain_oom("oom.html"):
    main()
"""


def page_of(times: int, conf: str = "") -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(_RUNS_OUT.format(times=times))
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=folder,
            env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "torch.OutOfMemoryError" in done.stderr, done.stderr
        assert "oom.html explains it" in done.stderr, done.stderr
        return Path(folder, "oom.html").read_text(encoding="utf-8").partition("<svg")[0]


def test_the_page_of_a_real_oom_names_the_line_that_asked() -> None:
    page = page_of(times=100)
    assert re.search(r"<p><code>[^<]*program[.]py:5</code>[^\n]*asked[.]</p>", page), page
    assert "reserved of 1.000 GiB" in page, page
    assert "attend(): x.grad_fn, saved for MulBackward0" in page, page
    assert "No other setting of the allocator lets this allocation pass" in page, page


def test_the_page_of_a_real_oom_in_backward_names_the_forward_line() -> None:
    # Of 16 MiB each there is room for 63 blocks. Forward leaves 62, and a step of backward needs 3.
    page = page_of(times=60)
    assert re.search(r"<p>The backward of <code>[^<]*program[.]py:5<", page), page
    assert re.search(r"asked, called by <code>[^<]*program[.]py:13</code>", page), page


def test_a_setting_that_is_on_is_not_advised() -> None:
    page = page_of(times=100, conf="expandable_segments:True")
    assert "ALLOC_CONF=expandable_segments:True lets" not in page, page
