"""Where cuDNN is installed, it plans the convolutions of a virtual GPU; elsewhere rules do."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline
from peakline import _cudnn

needs_planner = pytest.mark.skipif(
    not _cudnn._PLANNER.exists(), reason="peakline-planner was not built with this peakline"
)
needs_cudnn = pytest.mark.skipif(
    not _cudnn.planner_files(), reason="no cuDNN that peakline-planner could ask"
)


def convolve(gpu: str = "h200", dtype: torch.dtype = torch.float32, **settings: Any) -> int:
    """The peak of a small network's forward and backward pass."""
    with peakline.virtual_gpu(gpu):
        net = nn.Conv2d(64, 96, 3, padding=1, device="cuda", dtype=dtype, **settings)
        net(torch.rand(8, 64, 80, 80, device="cuda", dtype=dtype)).sum().backward()
        peak = torch.cuda.max_memory_allocated()
        del net
    return peak


def children() -> set[int]:
    """Processes that this one started and that run, or were not waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


# Where the library is looked for.


def test_switched_off_there_is_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAKLINE_CUDNN", "off")
    assert _cudnn.planner_files() == {}


def test_a_named_folder_without_the_library_is_not_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PEAKLINE_CUDNN", str(tmp_path))
    assert _cudnn.planner_files() == {}
    monkeypatch.setenv("PEAKLINE_CUDNN", str(tmp_path / "nowhere"))
    assert _cudnn.planner_files() == {}


@needs_planner
def test_a_named_folder_with_the_library_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libcudnn.so.9").touch()
    monkeypatch.setenv("PEAKLINE_CUDNN", str(tmp_path))
    assert _cudnn.planner_files() == {"program": str(_cudnn._PLANNER), "cudnn": str(tmp_path)}


@needs_planner
def test_the_library_is_found_in_the_package_that_pip_installs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudnn.so.9").touch()
    spec = importlib.util.spec_from_loader("nvidia.cudnn", None, is_package=True)
    assert spec is not None
    spec.submodule_search_locations = [str(folder.parent)]
    monkeypatch.delenv("PEAKLINE_CUDNN", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert _cudnn.planner_files()["cudnn"] == str(folder)


def test_without_the_package_there_is_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.delenv("PEAKLINE_CUDNN", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert _cudnn.planner_files() == {}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert _cudnn.planner_files() == {}


def test_without_the_program_there_is_nobody_to_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libcudnn.so.9").touch()
    monkeypatch.setenv("PEAKLINE_CUDNN", str(tmp_path))
    monkeypatch.setattr(_cudnn, "_PLANNER", tmp_path / "peakline-planner")
    assert _cudnn.planner_files() == {}


# A library that does not work.


@needs_planner
@pytest.mark.parametrize("content", ["", "not a library"])
def test_with_a_broken_library_the_rules_estimate_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    content: str,
) -> None:
    before = children()
    (tmp_path / "libcudnn.so.9").write_text(content)
    monkeypatch.setenv("PEAKLINE_CUDNN", "off")
    by_rules = convolve()
    monkeypatch.setenv("PEAKLINE_CUDNN", str(tmp_path))
    assert _cudnn.planner_files() != {}
    assert convolve() == by_rules
    assert capfd.readouterr() == ("", "")
    assert children() == before
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        nn.Conv2d(8, 8, 3, device="cuda")(torch.rand(2, 8, 16, 16, device="cuda"))
    assert any("cannot be asked by peakline-planner" in note for note in gpu.notes())


# A library that does.

# Of what was predicted before it was measured, calls that the rules have wrong by more than 10%.
ONCE_WRONG = (
    "dtype=float16 channels_last=False B=8 ci=512 co=512 size=24 k=3 stride=1 pad=1 groups=1",
    "dtype=float32 channels_last=False B=8 ci=64 co=96 size=80 k=3 stride=1 pad=1 groups=1",
    "dtype=float32 channels_last=False B=24 ci=256 co=256 size=20 k=3 stride=1 pad=1 groups=1",
    "dtype=float32 channels_last=True B=16 ci=128 co=192 size=40 k=3 stride=1 pad=1 groups=1",
    "dtype=float32 channels_last=False B=12 ci=384 co=768 size=14 k=1 stride=2 pad=0 groups=1",
    "call=conv1d_stride",
    "call=conv2d_dilated",
)


@needs_cudnn
@pytest.mark.parametrize("name", ONCE_WRONG)
def test_convolutions_that_rules_have_wrong_are_within_a_percent(
    compare_ops: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    measured = compare_ops.MEASURED.with_name("measured_fresh_ops_h200.jsonl")
    rows = [row for row in compare_ops.read(measured) if row["name"].endswith(" " + name)]
    (planned,) = compare_ops.compare(rows, "h200")
    assert planned.error <= 0.01, planned
    monkeypatch.setenv("PEAKLINE_CUDNN", "off")
    (by_rules,) = compare_ops.compare(rows, "h200")
    assert by_rules.error > 0.1, by_rules


@needs_cudnn
@pytest.mark.parametrize("gpu", ["a100-80", "t4", "b200", "l40s"])
def test_every_gpu_is_planned_for(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parts() -> dict[str, int]:
        device = peakline.virtual_gpu(gpu)
        with device:
            net = nn.Conv2d(128, 128, 3, padding=1, device="cuda", dtype=torch.float16)
            net(torch.rand(8, 128, 32, 32, device="cuda", dtype=torch.float16)).sum().backward()
            del net
        return device.confidence()

    planned = parts()
    assert planned["guessed"] == 0  # and no more than modelled: none of these was measured
    monkeypatch.setenv("PEAKLINE_CUDNN", "off")
    assert parts()["modelled"] > 0


@needs_cudnn
def test_torchs_switches_change_the_plan() -> None:
    usual = convolve()
    try:
        torch.backends.cudnn.allow_tf32 = False
        without_tf32 = convolve()
    finally:
        torch.backends.cudnn.allow_tf32 = True
    assert without_tf32 != usual
    assert convolve() == usual


def backward_of(net: nn.Module, x: torch.Tensor) -> int:
    """How much the backward pass needs above what forward left."""
    net.zero_grad()
    y = net(x)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y.sum().backward()
    return torch.cuda.max_memory_allocated() - before


def backward_under(**flags: bool) -> tuple[int, int, int]:
    """Before these flags of cuDNN's, under them, and after."""
    with peakline.virtual_gpu("h200"):
        net = nn.Conv2d(64, 96, 3, padding=1, device="cuda")
        x = torch.rand(8, 64, 80, 80, device="cuda")
        x @ x.mT  # the workspace of cuBLAS stays
        before = backward_of(net, x)
        with torch.backends.cudnn.flags(**{"enabled": True, **flags}):
            under = backward_of(net, x)
        after = backward_of(net, x)
        del net, x
    return before, under, after


@needs_cudnn
@pytest.mark.parametrize("switch", ["allow_tf32", "enabled"])
def test_a_switch_that_changes_between_two_calls_counts_at_once(switch: str) -> None:
    before, under, after = backward_under(**{switch: False})
    assert under != before
    assert after == before


def test_without_cudnn_one_picture_at_a_time_is_unfolded() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu, torch.backends.cudnn.flags(enabled=False):
        x = torch.rand(8, 16, 32, 32, device="cuda")
        net = nn.Conv2d(16, 16, 3, padding=1, device="cuda")
        net(x).sum().backward()  # the workspaces of cuBLAS stay
        rise = backward_of(net, x)
        del net, x
    gradient, columns = 8 * 16 * 32 * 32 * 4, 16 * 9 * 32 * 32 * 4
    assert columns < rise < 2 * gradient + columns
    assert not any("cuDNN" in note for note in gpu.notes() if "measured" not in note)


@pytest.mark.parametrize(
    ("channels", "dtype", "stride"),
    [
        (64, torch.float16, 1),  # computed by cuDNN
        (512, torch.float16, 2),
        (16, torch.float16, 1),  # by torch: few channels
        (64, torch.bfloat16, 1),  # by torch: only fp16 goes to cuDNN
    ],
)
def test_depthwise_pictures_take_nothing_beside_the_results(
    channels: int, dtype: torch.dtype, stride: int
) -> None:
    """As an H200 was seen to do, whoever computes them."""
    with peakline.virtual_gpu("h200"):
        net = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
        net = net.to("cuda", dtype)
        x = torch.rand(8, channels, 56, 56, device="cuda", dtype=dtype)
        # The gradient of the sum, made dense, and that of the weight.
        results = (net(x).numel() + net.weight.numel()) * dtype.itemsize
        rise = backward_of(net, x)
    assert 0 <= rise - results < 2048


@needs_cudnn
def test_the_answer_names_the_cudnn_that_planned() -> None:
    with peakline.virtual_gpu("h200") as run:
        nn.Conv2d(8, 8, 3, device="cuda")(torch.rand(2, 8, 16, 16, device="cuda"))
    assert re.fullmatch(r"9\.\d+\.\d+", run.info["cudnn"])


@needs_cudnn
def test_a_planner_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    gpu = peakline.virtual_gpu("h200")
    with gpu as run:
        nn.Conv2d(8, 8, 3, device="cuda")(torch.rand(2, 8, 16, 16, device="cuda"))
        (planner,) = children() - before
        os.kill(planner, signal.SIGKILL)
        nn.Conv2d(8, 16, 3, device="cuda")(torch.rand(2, 8, 16, 16, device="cuda"))
    version = run.info["cudnn"]
    assert any(
        f"cuDNN {version} cannot be asked by peakline-planner (it ended" in note
        for note in gpu.notes()
    )


@needs_cudnn
def test_a_process_runs_while_the_virtual_gpu_does_and_not_longer() -> None:
    before = children()
    with peakline.virtual_gpu("h200"):
        assert children() == before
        net = nn.Conv2d(8, 8, 3, device="cuda")
        net(torch.rand(2, 8, 16, 16, device="cuda"))
        assert len(children() - before) == 1
        del net
    assert children() == before


@needs_cudnn
def test_an_error_inside_leaves_no_process_behind() -> None:
    def work() -> None:
        with peakline.virtual_gpu("h200"):
            nn.Conv2d(8, 8, 3, device="cuda")(torch.rand(2, 8, 16, 16, device="cuda"))
            raise ZeroDivisionError

    before = children()
    with pytest.raises(ZeroDivisionError):
        work()
    assert children() == before


KILLED_WHILE_CONVOLVING = """
import os, signal
import torch
import peakline
from pathlib import Path
with peakline.virtual_gpu("h200"):
    torch.nn.Conv2d(8, 8, 3, device="cuda")(torch.rand(2, 8, 16, 16, device="cuda"))
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid():
            print(stat.parent.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_cudnn
def test_a_killed_program_leaves_no_process_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_CONVOLVING], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    planner = Path("/proc") / done.stdout.strip()
    patience = time.monotonic() + 30
    while _runs(planner) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not _runs(planner)


def _runs(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
