"""Programs that keep more with every step, and programs that do not."""

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

import peakline
import programs
from peakline.run import Run

SOURCE = Path(programs.__file__).read_text().splitlines()
STEPS = 8


def watched(program, device: str, found: list, steps: int = STEPS) -> Run:
    gpu = device == "cuda"
    watching = peakline.virtual_gpu() if gpu else peakline.track(stacks="all")
    name = "cuda:0" if gpu else "cpu"
    others = alive(name)  # of tests before this one, most of them larger than a kept loss
    with watching as run:
        n = others + 40
        program(device, steps, lambda: found.append((run.growth(name), run.holders(n, name))))
    return run


def grown(program, device: str, steps: int) -> list:
    found: list = []
    gpu = device == "cuda"
    with peakline.virtual_gpu() if gpu else peakline.track(stacks="all") as run:
        program(device, steps, lambda: found.extend(run.growth("cuda:0" if gpu else "cpu")))
    return found


def alive(device: str) -> int:
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return sum(tensor.device == torch.device(device) for tensor in tensors)


def said_of(program) -> list[str]:
    """Of several blocks what differs is left out. In a process with very many objects the search
    may find but one of them."""
    path = f"{program.__name__}(): {programs.LEAKS[program][0]}"
    return [path, path.replace("[0]", "[…]")]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("program", programs.LEAKS, ids=lambda program: program.__name__)
def test_a_leak_is_found_by_line_and_holder(program, device):
    found: list = []
    run = watched(program, device, found)
    growth, holders = found[0]
    holder, with_it = programs.LEAKS[program]
    lines = [SOURCE[row.place.line - 1].strip() for row in growth]
    (leak,) = [line for line in lines if line.endswith("# leaks")]
    assert set(lines) - {leak} == with_it
    assert f"{program.__name__}(): {holder}" in [held.path for held in holders]
    if device == "cuda":  # the host has tensors of others, too
        assert not [held for held in holders if not held.path]
    (row,) = [row for row, line in zip(growth, lines, strict=True) if line == leak]
    assert row.holder in said_of(program)
    (warning,) = [warning for warning in run.warnings if "grows with every step" in warning]
    assert lines[0] in warning  # the one that keeps most
    assert f"held by {growth[0].holder}" in warning


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("program", programs.CLEAN, ids=lambda program: program.__name__)
def test_a_clean_program_stays_silent(program, device):
    found: list = []
    run = watched(program, device, found)
    assert found[0][0] == []
    assert not any("grows" in warning for warning in run.warnings)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_three_steps_of_an_estimate_are_enough(device):
    found: list = []
    watched(programs.hidden_states, device, found, steps=3)
    (row,) = [row for row in found[0][0] if "# leaks" in SOURCE[row.place.line - 1]]
    assert row.per_step == programs.ROWS * programs.WIDTH * 4


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("program", programs.LEAKS, ids=lambda program: program.__name__)
def test_a_recording_of_which_nobody_asked_names_the_holder(program, device, tmp_path):
    gpu = device == "cuda"
    with peakline.virtual_gpu() if gpu else peakline.track(stacks="all") as run:
        program(device, STEPS, lambda: None)
    run.save(tmp_path / "run.peak")
    rows = peakline.load(tmp_path / "run.peak").growth("cuda:0" if gpu else "cpu")
    (row,) = [row for row in rows if "# leaks" in SOURCE[row.place.line - 1]]
    assert row.holder in said_of(program)


def test_looking_for_holders_by_itself_collects_nothing_and_thaws_nothing():
    class Cycle:
        def __init__(self) -> None:
            self.me, self.kept = self, torch.ones(3)

    gc.collect()
    gc.disable()
    try:
        gc.freeze()
        frozen = gc.get_freeze_count()
        with peakline.track(stacks="all") as run:
            cycle = weakref.ref(Cycle())
            programs.kept_losses("cpu", STEPS, lambda: None)
        assert cycle() is not None
        assert gc.get_freeze_count() > 0.9 * frozen  # of those that died since there are a few
        assert run.growth("cpu")[0].holder == "kept_losses(): losses[…]"
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("program", [programs.kept_after_step, programs.new_parameters])
def test_four_steps_are_enough_for_what_is_kept_after_the_optimizers_step(device, program):
    assert grown(program, device, 3) == []
    (row,) = grown(program, device, 4)
    assert "# leaks" in SOURCE[row.place.line - 1]
    assert row.holder == programs.HELD[program.__name__]


def test_what_an_earlier_virtual_gpu_left_at_the_same_address_is_nobodys():
    left: list = []
    for _ in range(2):
        with peakline.virtual_gpu() as run:
            outputs = programs.keep("cuda", STEPS)
            (row,) = run.growth()
        assert row.holder.endswith("_is_nobodys(): outputs[…]")
        left.append(outputs)


@pytest.mark.parametrize("steps", [3, 4, 5])
@pytest.mark.parametrize("program", programs.CLEAN, ids=lambda program: program.__name__)
def test_a_clean_program_stays_silent_in_few_steps(program, steps):
    if program is programs.replay_buffer:
        pytest.skip("a buffer that is being filled looks like a leak")
    assert grown(program, "cuda", steps) == []


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import programs
def main():
    programs.{program}("cuda", 12, lambda: None)
main()
"""


@pytest.mark.parametrize(
    ("program", "steps", "leaks"),
    [
        ("kept_after_step", 4, True),
        ("hidden_states", 3, True),
        ("plain", 3, False),
        ("two_in_turns", 4, False),
    ],
)
def test_an_estimate_takes_one_more_step_where_that_shows_a_leak(program, steps, leaks, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(Path(programs.__file__).parent), program=program))
    answer = estimate(script, "-o", str(tmp_path / "run.peak"))
    assert answer["steps_completed"] == steps
    held = [row["holder"] for row in answer.get("growth", [])]
    loaded = [row.holder for row in peakline.load(tmp_path / "run.peak").growth()]
    assert held == loaded
    assert held == ([programs.HELD[program]] if leaks else [])


def estimate(script: Path, *flags: str) -> dict:
    command = [sys.executable, "-m", "peakline._estimate_script", str(script), "--json", "-"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_recording_says_that_holders_need_the_process(tmp_path):
    with peakline.track() as run:
        pass
    run.save(tmp_path / "run.peak")
    with pytest.raises(ValueError, match="needs the live process"):
        peakline.load(tmp_path / "run.peak").holders()
    with pytest.raises(ValueError, match="needs the live process"):
        run.holders()
