"""The page about the moment memory ran out."""

import json
import subprocess
import sys

import pytest
import torch

import peakline
from peakline import _cuda_baseline


def fill(device: str) -> None:
    blocks = []
    while True:
        blocks.append(torch.ones(1 << 24, device=device))  # 64 MiB


def explained(tmp_path, run_it, **options) -> str:
    path = tmp_path / "oom.html"
    with (
        peakline.virtual_gpu(memory="512MiB", **options),
        pytest.raises(torch.OutOfMemoryError),
        peakline.explain_oom(path),
    ):
        run_it("cuda")
    return path.read_text()


EXPLAINED = """
import runpy, torch, peakline

try:
    with peakline.virtual_gpu(memory="512MiB"), peakline.explain_oom("oom.html"):
        runpy.run_path("program.py")
except torch.OutOfMemoryError:
    pass
"""

FILLS = """
import torch

def fill(device):
    blocks = []
    while True:
        blocks.append(torch.ones(1 << 24, device=device))  # 64 MiB

fill("cuda")
"""

GROWS = """
import torch

def grow(device):
    weight = torch.ones(1 << 22, device=device, requires_grad=True)
    x = torch.ones(1 << 22, device=device)
    while True:
        x = x * weight  # 16 MiB, and the graph keeps the one before

grow("cuda")
"""


def explained_alone(tmp_path, program: str) -> tuple[str, str]:
    """The page and what was printed. In a process of its own: what a page says about variables are
    the largest of the process, and other tests may have larger ones."""
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "explained.py").write_text(EXPLAINED)
    done = subprocess.run(
        [sys.executable, "explained.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return (tmp_path / "oom.html").read_text(), done.stderr


def test_the_page_names_the_line_that_asked_and_what_was_alive(tmp_path):
    page, said = explained_alone(tmp_path, FILLS)
    assert "64.00 MiB" in page
    assert "blocks.append(torch.ones(1 &lt;&lt; 24, device=device))" in page
    assert "fill(): blocks[" in page
    assert "512.0 MiB" in page
    assert "explains it" in said
    assert "<script" not in page


def test_what_the_function_that_failed_holds_is_said_by_its_variables(tmp_path):
    page, _ = explained_alone(tmp_path, GROWS)
    assert "<code>grow(): x.grad_fn, saved for MulBackward0</code>" in page
    assert "__traceback__" not in page


def test_no_setting_is_advised_where_none_helps(tmp_path):
    assert "No other setting of the allocator lets this allocation pass" in explained(
        tmp_path, fill
    )


def eight(device: str) -> None:
    blocks = [torch.ones(1 << 24, device=device) for _ in range(8)]  # as much as there is
    del blocks


def test_what_helps_is_tried_before_it_is_said_and_nothing_that_is_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    page = explained(tmp_path, eight)
    assert "Without the settings of PYTORCH_CUDA_ALLOC_CONF this allocation passes." in page
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets" not in page
    # Followed, it does.
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    with peakline.virtual_gpu(memory="512MiB"):
        eight("cuda")


def half(device: str) -> None:
    torch.cuda.set_per_process_memory_fraction((1 << 30) / torch.cuda.mem_get_info()[1])
    fill(device)


def test_advice_keeps_to_the_limit_that_the_program_has_set_itself(tmp_path):
    page = tmp_path / "oom.html"
    with (
        peakline.virtual_gpu(memory="2GiB") as run,
        pytest.raises(torch.OutOfMemoryError),
        peakline.explain_oom(page),
    ):
        half("cuda")
    assert "reserved of 1.000 GiB" in page.read_text()
    assert "No other setting of the allocator lets this allocation pass" in page.read_text()
    assert json.loads(run.to_json())["memory_limit"] == 1 << 30


def test_the_settings_of_a_real_allocator_are_known_before_advice_is_given(tmp_path, monkeypatch):
    happened = []
    answers = peakline.Run.to_json

    def asked(run):
        happened.append("asked")
        return answers(run)

    monkeypatch.setattr(_cuda_baseline, "write_settings", lambda _: happened.append("told"))
    monkeypatch.setattr(peakline.Run, "to_json", asked)
    error = torch.OutOfMemoryError("made up")
    with pytest.raises(torch.OutOfMemoryError), peakline.explain_oom(tmp_path / "oom.html"):
        raise error
    assert happened == ["told", "asked", "told"]


KEEPS = """
import torch

def train(device):
    weight = torch.ones(1 << 20, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    kept = []
    while True:
        scores = (weight * 2).repeat(8)  # 32 MiB
        scores.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(scores)

train("cuda")
"""


def test_who_holds_what_grows_is_named_by_its_variable_though_the_function_has_ended(tmp_path):
    page, _ = explained_alone(tmp_path, KEEPS)
    assert "Grows with every step" in page
    assert "held by <code>train(): kept[…]</code>" in page


def test_the_programs_own_line_stands_before_torchs(tmp_path):
    program = GROWS.replace("x = torch.ones(1 << 22, device=device)", "x = weight")
    page, _ = explained_alone(
        tmp_path, program.replace("x * weight", "torch.nn.functional.silu(x)")
    )
    assert page.index("program.py:8</code>") < page.index("torch/nn/functional.py")


def test_nothing_is_written_when_nothing_happens(tmp_path):
    path = tmp_path / "oom.html"
    with peakline.explain_oom(path):
        torch.ones(10)
    with pytest.raises(KeyError), peakline.explain_oom(path):
        raise KeyError("another error")
    assert not path.exists()
    with peakline.track():  # nothing is left running
        pass


@pytest.mark.filterwarnings("error")  # a warning must not take the place of the program's error
def test_an_error_in_the_explanation_is_no_error_of_the_program(tmp_path, monkeypatch, capsys):
    def broken(run, message):
        raise RuntimeError("no")

    monkeypatch.setattr(sys.modules["peakline.explain_oom"], "gather", broken)
    with (
        peakline.virtual_gpu(memory="512MiB"),
        pytest.raises(torch.OutOfMemoryError),
        peakline.explain_oom(tmp_path / "a.html"),
    ):
        fill("cuda")
    said = f"{tmp_path}/a.html is not written, for an error of peakline's own: RuntimeError('no')"
    assert capsys.readouterr().err == f"peakline: memory ran out; {said}\n"


FAILS = """
import torch

def attend(x, weight):
    return x * weight

weight = torch.ones(1 << 22, device="cuda", requires_grad=True)
x = torch.ones(1 << 22, device="cuda")
for _ in range({times}):
    x = attend(x, weight)
x.sum().backward()
"""


@pytest.mark.parametrize(
    ("times", "asked"),
    [
        (40, "fails.py:5 (return x * weight) asked for it."),
        (13, "The backward of fails.py:5 (return x * weight) asked for it, called by "),
    ],
)
def test_an_estimate_says_which_line_asked_and_what_lines_held(tmp_path, times, asked):
    (tmp_path / "fails.py").write_text(FAILS.format(times=times))
    command = [sys.executable, "-m", "peakline", "estimate", "fails.py", "--memory", "256MiB"]
    done = subprocess.run([*command, "--json", "-"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    oom = json.loads(done.stdout)["oom"]
    assert asked in oom["where"]
    line, held = next(iter(oom["by_line"].items()))  # the largest
    assert line == "fails.py:5"
    assert held % (1 << 24) == 0
    assert sum(oom["by_line"].values()) == sum(oom["by_category"].values())


@pytest.mark.parametrize("before", ["", "kept = torch.ones(1 << 20)\n"])
def test_run_takes_it_as_a_flag_and_says_when_there_is_nothing_to_explain(tmp_path, before):
    (tmp_path / "script.py").write_text(
        f"import torch\n{before}raise torch.OutOfMemoryError('made up')\n"
    )
    command = [sys.executable, "-m", "peakline", "run", "script.py", "-o", "run.peak"]
    command += ["--on-oom", "oom.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    why = (
        "no allocation failed while it was tracked, so there is none to explain"
        if before
        else "nothing was allocated in this run yet, so there is nothing to say"
    )
    number = 3 if before else 2
    assert done.stderr.splitlines()[:5] == [
        f"peakline: memory ran out; oom.html is not written: {why}",
        "Traceback (most recent call last):",
        f'  File "script.py", line {number}, in <module>',
        "    raise torch.OutOfMemoryError('made up')",
        "torch.OutOfMemoryError: made up",
    ]
    assert not (tmp_path / "oom.html").exists()
