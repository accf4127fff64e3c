"""`peakline estimate`: unmodified scripts, answers, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from estimate_support import Answer, Estimate, write

import peakline


def test_a_script_ends_after_three_steps_and_fits(folder: Path, estimate: Estimate) -> None:
    done = estimate("train.py")
    assert done.returncode == 0, done.stderr
    assert "never reached" not in done.stderr
    assert "step 1" in done.stderr
    assert "step 2" not in done.stderr  # the third step ended it
    assert "Peak allocated" in done.stdout
    assert "fits," in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_json_has_what_the_interface_names_and_adds_up(folder: Path, answer: Answer) -> None:
    found = answer("train.py")
    assert found["schema_version"] == 1
    assert found["device"] == "cuda:0"
    assert "H200" in found["gpu"]
    assert found["fits"] is True
    assert found["ooms"] == found["retries"] == 0
    assert sum(found["by_category"].values()) == found["peak_allocated"]
    assert sum(found["confidence"].values()) == found["peak_allocated"]
    assert found["peak_allocated"] <= found["peak_reserved"] <= found["memory_limit"]
    assert found["by_category"]["Parameter"] == 2 * (1024 * 1024 + 1024) * 4
    assert found["by_category"]["Optstate"] == 4 * (1024 * 1024 + 1024) * 4
    assert len(found["steps"]) >= 3
    assert found["steps_completed"] == 3
    assert any(row["path"] == "Sequential.0" for row in found["modules"])
    assert found["unknown_values"] == 2  # loss.item() of the first two steps


def test_the_number_of_steps_and_the_scripts_arguments_are_passed_on(
    folder: Path, answer: Answer
) -> None:
    small = answer("train.py", "--steps", "2", "--", "--batch", "8")
    large = answer("train.py", "--steps", "2", "--", "--batch", "8192")
    assert small["steps_completed"] == 2
    assert large["peak_allocated"] > small["peak_allocated"] + 2**26


def test_what_does_not_fit_exits_with_3_and_says_why(
    folder: Path, estimate: Estimate, answer: Answer
) -> None:
    done = estimate("train.py", "--memory", "64MiB", "--", "--batch", "8192")
    assert done.returncode == 3, done.stderr
    assert "does not fit" in done.stdout
    assert "CUDA out of memory. Tried to allocate" in done.stdout
    assert "Parameter" in done.stdout
    assert "PYTORCH_CUDA_ALLOC_CONF" in done.stdout
    assert "Traceback" not in done.stderr
    found = answer("train.py", "--memory", "64MiB", "--", "--batch", "8192")
    assert found["fits"] is False
    assert found["ooms"] == 1
    assert found["memory_limit"] == 2**26
    assert found["oom"]["by_category"]


def test_a_script_that_survives_its_oom_by_itself_fits_and_this_is_told(
    folder: Path, estimate: Estimate
) -> None:
    source = """
        import torch
        try:
            torch.empty(2**40, device="cuda")
        except torch.cuda.OutOfMemoryError:
            x = torch.empty(2**20, device="cuda")
    """
    write(folder, "brave.py", source)
    done = estimate("brave.py")
    assert done.returncode == 0
    assert "memory ran out once, and the script went on by itself" in done.stdout


def test_settings_of_the_environment_change_what_is_reserved(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        held = [torch.empty(17 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(64)]
    """
    write(folder, "blocks.py", source)
    plain = answer("blocks.py")
    conf = {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:2"}
    rounded = answer("blocks.py", env=conf)
    assert rounded["peak_reserved"] > plain["peak_reserved"] * 1.2


def test_a_script_that_never_steps_runs_to_its_end_with_a_warning(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "infer.py", "import torch\nx = torch.zeros(1000, device='cuda')\nprint('end')\n")
    done = estimate("infer.py")
    assert done.returncode == 0
    assert "end" in done.stderr
    assert "no optimizer made a step" in done.stdout


@pytest.mark.parametrize(("end", "status"), [("sys.exit(0)", 0), ("sys.exit(5)", 1), ("1 / 0", 1)])
def test_how_the_script_ends_decides_the_status(
    folder: Path, estimate: Estimate, end: str, status: int
) -> None:
    write(folder, "end.py", f"import sys, torch\nx = torch.zeros(9, device='cuda')\n{end}\n")
    done = estimate("end.py")
    assert done.returncode == status
    if end == "1 / 0":
        assert done.stderr.startswith("Traceback")
        assert "ZeroDivisionError" in done.stderr
        assert "_estimate" not in done.stderr


def test_a_script_without_gpu_memory_is_no_estimate(folder: Path, estimate: Estimate) -> None:
    write(folder, "cpu.py", "import torch\ntorch.zeros(9)\n")
    done = estimate("cpu.py")
    assert done.returncode == 1
    assert "no GPU memory" in done.stderr


def test_the_recording_is_kept_and_opens(folder: Path, estimate: Estimate) -> None:
    estimate("train.py", "-o", "run.peak", "--json", "answer.json")
    run = peakline.load(folder / "run.peak")
    found = json.loads((folder / "answer.json").read_text())
    assert run.peak("cuda:0").bytes == found["peak_allocated"]
    assert run.peak("cuda:0").reserved == found["peak_reserved"]


def test_a_module_can_be_estimated(folder: Path, answer: Answer) -> None:
    assert answer("-m", "train", "--steps", "1")["steps_completed"] == 1


def test_several_devices_are_counted_apart(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        x = torch.zeros(2**20, device="cuda:1")
        y = torch.zeros(2**10, device="cuda:0")
    """
    write(folder, "two.py", source)
    found = answer("two.py", "--devices", "2")
    assert found["device"] == "cuda:1"
    assert [row["device"] for row in found["devices"] if row["device"] != "cpu"] == ["cuda:0"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "give either a script or -m MODULE"),
        (["missing.py"], "cannot read 'missing.py'"),
        (["train.py", "--gpu", "rtx9999"], "h200"),
        (["train.py", "--gpu", "missing.toml"], "missing.toml"),
        (["train.py", "--memory", "lots"], "lots"),
        (["train.py", "--memory", "0"], "no memory"),
        (["train.py", "--devices", "9"], "--devices takes 1 to 8"),
        (["train.py", "--steps", "0"], "--steps"),
        (["train.py", "--steps", "x"], "--steps"),
        (["train.py", "--wrong"], "--wrong"),
        (["train.py", "-o", "missing/run.peak"], "missing/run.peak"),
        (["train.py", "--json", "missing/a.json"], "missing/a.json"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(
    folder: Path, estimate: Estimate, args: list[str], words: str
) -> None:
    done = estimate(*args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    complaint = [line for line in done.stderr.splitlines() if line.startswith("peakline: ")]
    assert len(complaint) == 1
    assert words in complaint[0]


def test_the_program_starts_it_in_a_process_of_its_own(folder: Path) -> None:
    command = [sys.executable, "-m", "peakline._estimate_script", "train.py", "--steps", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Peak reserved" in done.stdout
    assert done.stderr == ""


def test_settings_that_the_script_itself_makes_are_counted(folder: Path) -> None:
    source = """
        import os
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "roundup_power2_divisions:2"
        import torch
        x = torch.empty(17 * 2**20, dtype=torch.uint8, device="cuda")
    """
    write(folder, "own.py", source)
    command = [sys.executable, "-m", "peakline._estimate_script", "own.py", "--json", "-"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["peak_allocated"] == 24 * 2**20
    assert done.stderr == ""  # it ran once


def test_help_has_an_example(folder: Path, estimate: Estimate) -> None:
    done = estimate("--help")
    assert done.returncode == 0
    assert "example: peakline estimate" in done.stdout
