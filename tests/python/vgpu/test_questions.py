"""Who asked for values that nobody can know: told by line; and loops that wait for one end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import peakline
from peakline._virtual_cuda import EndlessQuestion, _policy
from peakline._virtual_cuda._questions import ENDLESS, asking_line

HERE = f"{Path(__file__).name}:"


def line_of(what: str) -> int:
    """The number of the line of this file that ends so."""
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith("# " + what))


def told(gpu: peakline.virtual_gpu) -> list[str]:
    return [note for note in gpu.notes() if "nobody can know" in note]


def test_a_number_that_may_only_be_printed_is_not_told() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        loss = torch.randn(8, device="cuda").sum()
        print(loss.item(), float(loss), loss.cpu())
        print(torch.randn(4, 4, device="cuda").argmax(-1).cpu())
    assert gpu.counters()["unknown_values"] == 4
    assert told(gpu) == []


def test_branches_and_sizes_are_told_by_the_line_that_asked() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        x = torch.randn(8, device="cuda")
        for _ in range(3):
            if x.sum() > 2:  # branch
                pass
        lengths = torch.randint(1, 9, (4,), device="cuda")
        torch.zeros(int(lengths.max()), device="cuda")  # size
        x[x > 0]  # mask
        torch.zeros(lengths.tolist())  # list
    branch, size = told(gpu)
    assert f"{HERE}{line_of('branch')};" in branch
    assert branch.startswith("which way the program goes depends on values that nobody can know")
    for what in ("size", "mask", "list"):
        assert f"{HERE}{line_of(what)}" in size
    assert "count in full where --values nonzero=SHARE" in size


def test_lines_inside_torch_are_those_of_who_called_it() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        x = torch.randn(8, device="cuda")
        torch.allclose(x, torch.zeros_like(x))  # called
    assert f"{HERE}{line_of('called')};" in told(gpu)[0]


def test_many_lines_are_counted_and_not_listed() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        x = torch.randn(8, device="cuda").sum()
        bool(x > 2)
        bool(x > 2)
        bool(x > 2)
        assert "and 1 more line" not in "".join(told(gpu))
        bool(x > 2)
        assert "and 1 more line;" in told(gpu)[0]
        bool(x > 2)
        assert "and 2 more lines;" in told(gpu)[0]


def wait_for_convergence() -> None:
    x = torch.ones(4, device="cuda") + torch.randn(4, device="cuda")
    while True:
        try:
            if (x * 2).sum() < 1e-3:  # waits
                break
        except Exception:
            continue


def test_a_loop_that_waits_for_an_unknown_value_is_ended_and_named() -> None:
    with peakline.virtual_gpu("h200"), pytest.raises(EndlessQuestion) as ended:
        wait_for_convergence()
    assert f"{HERE}{line_of('waits')} asked {ENDLESS:,} times" in str(ended.value)
    assert not issubclass(EndlessQuestion, Exception)


def test_steps_in_between_are_no_endless_loop() -> None:
    with peakline.virtual_gpu("h200"):
        weight = torch.nn.Parameter(torch.zeros(2, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            for _ in range(ENDLESS * 2 // 3):
                torch.rand((), device="cuda").item()
            optimizer.step()


def test_a_tensor_as_text_decides_nothing_and_may_be_made_as_often_as_one_likes() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        numbers = torch.rand(500, device="cuda")
        for _ in range(30):
            assert "device='cuda:0'" in repr(numbers)
    assert not [note for note in gpu.notes() if "nobody can know" in note]


def test_known_values_may_be_asked_for_as_often_as_one_likes() -> None:
    with peakline.virtual_gpu("h200"):
        one = torch.ones((), device="cuda")
        for _ in range(ENDLESS + 10):
            assert one > 0


def test_the_asking_line_is_found_without_any_of_the_programs_own() -> None:
    assert asking_line(None) == ("", 0)


WAITS = """
import torch
x = torch.randn(1 << 20, device="cuda")
while True:
    if x.sum() < 1e-3:
        break
"""
BRANCHES = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    loss = model(torch.randn(8, 64, device="cuda")).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
    if loss > 0.75:
        extra = torch.zeros(1 << 28, device="cuda")
"""


def estimate(script: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(script)
    command = [sys.executable, "-m", "peakline", "estimate", "program.py", *flags]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_an_endless_loop_ends_as_a_partial_answer(tmp_path: Path) -> None:
    done = estimate(WAITS, tmp_path, "--json", "answer.json")
    assert done.returncode == 124, done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["partial"] is True
    assert answer["peak_allocated"] >= 4 << 20
    assert "program.py:5 asked 10,000 times" in answer["warnings"][0]
    assert "program.py:5" in done.stdout.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_values_of_the_command_line_change_the_answers(tmp_path: Path) -> None:
    answers = []
    for flags in ([], ["--values", "float=0.5"], ["--values", "bool=no", "--values", "int=3"]):
        done = estimate(BRANCHES, tmp_path, *flags, "--json", "answer.json")
        assert done.returncode == 0, done.stderr
        answers.append(json.loads((tmp_path / "answer.json").read_text()))
    extra = [answer["peak_allocated"] >= 1 << 30 for answer in answers]
    assert extra == [True, False, False]
    assert any("program.py:10" in sentence for sentence in answers[0]["warnings"])
    assert not any("made up" in sentence for sentence in answers[0]["warnings"])
    assert answers[0]["partial"] is False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("flaot=1", "'flaot' is none"),
        ("float", "not NAME=V"),
        ("float=much", "float takes a number, and got 'much'"),
        ("bool=maybe", "bool takes true or false"),
        ("int=1.5", "int takes a whole number"),
        ("nonzero=2", "0 to 1, and got 2"),
        ("int=inf", "int takes a whole number"),
    ],
)
def test_bad_values_are_refused_in_one_sentence(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("'", ".")):
        _policy.parse(given)


def test_values_of_the_python_face_are_checked() -> None:
    assert _policy.check({"bool": True, "int": 3}) == {"bool": True, "int": 3}
    with pytest.raises(ValueError, match="'size' is none"):
        peakline.virtual_gpu("h200", values={"size": 1})


def test_the_command_line_refuses_and_explains(tmp_path: Path) -> None:
    done = estimate(BRANCHES, tmp_path, "--values", "nonsense=1")
    assert done.returncode == 2
    assert "float, int, bool, nonzero" in done.stderr
    assert "Traceback" not in done.stderr
    help_text = estimate(BRANCHES, tmp_path, "--help").stdout
    assert "--values NAME=V" in help_text
