"""Which line of the program allocated what."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import site_program
import torch

import peakline
from peakline._stacks import is_library
from peakline.run import LineUse, Run

BYTES = site_program.UNIT * 4
LONGEST = 160  # of a line's text, in bytes


def run_program(text: str, path: Path, device: str) -> None:
    path.write_text(text)
    exec(compile(text, str(path), "exec"), {"DEVICE": device, "__name__": "sites"})


def own_lines(run: Run, path: Path, device: str) -> list[LineUse]:
    return [row for row in run.lines(device=device) if row.place.file == str(path)]


def tracked(path: Path, text: str) -> list[LineUse]:
    with peakline.track(stacks="all") as run:
        run_program(text, path, "cpu")
    return own_lines(run, path, "cpu")


def estimated(path: Path, text: str) -> list[LineUse]:
    with peakline.virtual_gpu() as run:
        run_program(text, path, "cuda")
    return own_lines(run, path, "cuda:0")


@pytest.mark.parametrize("watch", [tracked, estimated])
def test_a_hundred_places_are_each_found_by_their_line(tmp_path, watch):
    program = site_program.write()
    assert len(program.sites) == 100
    rows = watch(tmp_path / "sites.py", program.text)
    by_line = {row.place.line: row for row in rows if row.called_from is None}
    missed = {
        n: line
        for n, line in program.sites.items()
        if line not in by_line or by_line[line].largest != program.units[n] * BYTES
    }
    assert not missed
    for line, row in by_line.items():
        assert row.place.text == program.lines[line - 1].strip()[:LONGEST]
    for n in program.recomputed:  # in forward, and once more in backward
        assert by_line[program.sites[n]].allocations == 2


@pytest.mark.parametrize("watch", [tracked, estimated])
def test_what_backward_allocates_goes_to_the_forward_line(tmp_path, watch):
    program = site_program.write()
    rows = watch(tmp_path / "sites.py", program.text)
    found = {row.place.line: row for row in rows if row.called_from is not None}
    missed = {
        n: line
        for n, line in program.backward.items()
        if line not in found or found[line].largest != n * BYTES
    }
    assert not missed
    assert {row.called_from.line for row in found.values()} == {program.backward_line}


def test_only_large_blocks_have_lines_by_default():
    with peakline.track() as run:
        small = torch.ones(1000)
        large = torch.ones(1 << 18)  # 1 MiB
    here = [row for row in run.lines() if row.place.file == __file__]
    assert [row.largest for row in here] == [1 << 20]
    assert here[0].place.text.startswith("large = ")
    del small, large


def test_off_leaves_them_out():
    with peakline.track(stacks="off") as run:
        torch.ones(1 << 20)
    assert run.lines() == []


def test_another_word_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="stacks='some': choose one of"):
        peakline.track(stacks="some")


def make_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))


def train(model, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = model(torch.ones(256, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def test_steps_that_repeat_have_the_lines_of_the_first(tmp_path):
    model = make_model()
    with peakline.track(model, stacks="all") as run:
        train(model, 3)
    few = {(row.place, row.called_from): row.allocations for row in run.lines()}
    with peakline.track(model, stacks="all") as run:
        train(model, 13)
    many = {(row.place, row.called_from): row.allocations for row in run.lines()}
    assert few.keys() == many.keys()
    for key, count in few.items():
        per_step = (many[key] - count) / 10
        assert per_step == int(per_step), key


def evaluate(model, kept: list[torch.Tensor]) -> None:
    with torch.no_grad():
        kept.append(model(torch.ones(256, 64)))


def lines_of(run: Run, function: str) -> dict[str, int]:
    rows = [row for row in run.lines() if row.place.function == function]
    return {row.place.text: row.allocations for row in rows if row.called_from is None}


def test_another_loop_over_the_same_sizes_has_lines_of_its_own():
    model = make_model()
    kept: list[torch.Tensor] = []

    def train_again() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            loss = model(torch.ones(256, 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    with peakline.track(model, stacks="all") as run:
        train(model, 6)
        train_again()
        evaluate(model, kept)
    first = lines_of(run, "train")
    assert all(count % 6 == 0 for count in first.values())
    again = lines_of(
        run,
        f"{test_another_loop_over_the_same_sizes_has_lines_of_its_own.__name__}"
        ".<locals>.train_again",
    )
    assert again == first
    assert list(lines_of(run, "evaluate").values()) == [4]


def test_what_ends_the_repetition_has_its_line():
    model = make_model()
    with peakline.track(model, stacks="all") as run:
        train(model, 6)
        after = torch.ones(3000)
    here = [row for row in run.lines() if row.place.text.startswith("after = ")]
    assert [row.largest for row in here] == [12_000]
    del after


def test_the_recording_keeps_no_text_when_told(tmp_path):
    script = tmp_path / "secret_script.py"
    script.write_text("import torch\nkept = torch.ones(1 << 19)  # a secret\n")
    for flag in ([], ["--no-source"]):
        out = tmp_path / f"{len(flag)}.peak"
        command = [sys.executable, "-m", "peakline", "run", str(script), "-o", str(out), *flag]
        subprocess.run(command, check=True, capture_output=True)
        (row,) = [row for row in peakline.load(out).lines() if row.place.file == str(script)]
        assert row.place.line == 2
        assert ("secret" in row.place.text) == (not flag)


def test_recordings_with_stacks_are_at_most_half_as_large_again(tmp_path):
    sizes = {}
    for stacks in ("off", "all"):
        model = make_model()
        with peakline.track(model, stacks=stacks) as run:
            train(model, 300)
        run.save(tmp_path / stacks)
        sizes[stacks] = (tmp_path / stacks).stat().st_size
    assert sizes["all"] <= 1.5 * sizes["off"], sizes


def test_json_has_the_lines(tmp_path):
    with peakline.track(stacks="all") as run:
        kept = torch.ones(1 << 18)
    rows = json.loads(run.to_json())["lines"]
    (row,) = [row for row in rows if row["file"] == __file__]
    assert row["function"] == "test_json_has_the_lines"
    assert row["at_peak"] == 1 << 20
    assert row["by_category"] == {"Other": 1 << 20}
    del kept


def stack_at_peak(run: Run) -> list[dict]:
    return json.loads(run.to_json())["peak"]["stack"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_functions_of_cpp_stand_below_the_line_that_called_them_when_asked_for(device):
    found = {}
    for cpp in (False, True):
        watch = peakline.virtual_gpu if device == "cuda" else peakline.track
        with watch(cpp=cpp) as run:
            torch.ones(1 << 22, device=device)
        (found[cpp],) = [row for row in run.lines() if row.place.file == __file__]
        below = [place for place in stack_at_peak(run) if not place["line"]]
        if not cpp:
            assert below == []
            continue
        assert any("at::_ops::" in place["function"] for place in below), below
        assert all(".so" in place["file"] for place in below)
        assert not any("/peakline/" in place["file"] for place in below)
        assert not any(place["function"].startswith(("_Py", "Py")) for place in below)
        own = stack_at_peak(run)[len(below)]  # the innermost first
        assert own["file"] == __file__
    assert found[True] == found[False]


def test_steps_repeat_with_functions_of_cpp_too():
    model = make_model()
    counts = []
    for steps in (3, 13):
        with peakline.track(model, stacks="all", cpp=True) as run:
            train(model, steps)
        counts.append({(row.place, row.called_from): row.allocations for row in run.lines()})
    assert counts[0].keys() == counts[1].keys()


@pytest.mark.parametrize("command", ["run", "estimate"])
def test_both_commands_take_functions_of_cpp(tmp_path, command):
    device = "cpu" if command == "run" else "cuda"
    script = tmp_path / "script.py"
    script.write_text(f"import torch\nkept = torch.ones(1 << 22, device='{device}')\n")
    out = tmp_path / "run.peak"
    words = [sys.executable, "-m", "peakline", command, str(script), "-o", str(out), "--cpp-stacks"]
    subprocess.run(words, check=True, capture_output=True)
    run = peakline.load(out)
    assert any("at::_ops::" in place["function"] for place in stack_at_peak(run))
    assert [row.place.line for row in run.lines() if row.place.file == str(script)] == [2]


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        (torch.nn.__file__, True),
        (subprocess.__file__, True),
        ("<frozen runpy>", True),
        ("/any/folder/qq/cqqjcqu6lz2754wafihhmwf2fusfr5ovmkwmnu44evq7mg7bclbk.py", True),
        ("/tmp/torchinductor_me/qq/cqq.py", True),
        ("/home/me/qq/train.py", False),
        ("/usr/lib/python3/site-packages/transformers/trainer.py", False),
    ],
)
def test_whose_file_it_is(file, is_one):
    assert is_library(file) == is_one


@pytest.mark.parametrize("command", ["estimate", "run"])
def test_the_program_that_starts_a_script_is_no_line_of_it(tmp_path: Path, command: str) -> None:
    (tmp_path / "job.py").write_text(
        "import torch\n"
        "def make():\n"
        "    return torch.zeros(1 << 20, device='cuda' if 'estimate' in NAME else 'cpu')\n"
        "exec('kept = make()')\n".replace("NAME", repr(command))
    )
    program = Path(sysconfig.get_path("scripts")) / "peakline"
    words = [program, command, "job.py", "-o", "job.peak"]
    subprocess.run(words, check=True, capture_output=True, cwd=tmp_path)
    shown = subprocess.run(
        [program, "show", "job.peak", "--json", "-"], capture_output=True, text=True, cwd=tmp_path
    )
    answer = json.loads(shown.stdout)
    stack = answer["peak"]["stack"]
    places = [(one["file"], one["line"], one["function"]) for one in stack if one["line"]]
    assert places == [("job.py", 3, "make"), ("<string>", 1, "<module>"), ("job.py", 4, "<module>")]
