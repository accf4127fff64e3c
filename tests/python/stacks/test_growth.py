"""Programs that keep more with every step, and programs that do not."""

import gc
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


def alive(device: str) -> int:
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return sum(tensor.device == torch.device(device) for tensor in tensors)


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
    (warning,) = [warning for warning in run.warnings if "grows with every step" in warning]
    assert lines[0] in warning  # the one that keeps most


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
    assert row.per_step == 32 * programs.WIDTH * 4


def test_a_recording_says_that_holders_need_the_process(tmp_path):
    with peakline.track() as run:
        pass
    run.save(tmp_path / "run.peak")
    with pytest.raises(ValueError, match="needs the live process"):
        peakline.load(tmp_path / "run.peak").holders()
    with pytest.raises(ValueError, match="needs the live process"):
        run.holders()
