"""`peakline fit`, on scripts that tests write."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from estimate_support import Done, write
from torch import nn

import peakline

TRAIN = """
    import argparse
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=1)
    args = parser.parse_args()
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    for step in range(100):
        rows = args.batch_size * args.length
        loss = model(torch.randn(rows, 1024, device="cuda")).pow(2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
Fit = Callable[..., Done]
DATA = Path(__file__).parents[2] / "data"
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    """In a process of its own: one in which autograd has run cannot be forked."""
    write(tmp_path, "train.py", TRAIN)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*args: str, command: str = "_fit_script") -> Done:
        done = subprocess.run(
            [sys.executable, "-m", f"peakline.{command}", *args],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def answer(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_largest_batch_fits_and_the_next_does_not(fit: Fit) -> None:
    flags = ["train.py", "--memory", "256MiB"]
    done = fit(*flags, "--vary", "batch-size=1..65536", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = answer(done)
    assert found["fits"]
    assert found["peak_reserved"] <= 256 << 20
    for batch, status in ((found["value"], 0), (found["value"] + 1, 3)):
        tried = fit(*flags, "--", "--batch-size", str(batch), command="_estimate_script")
        assert tried.returncode == status
    assert f"batch-size {found['value']}: fits" in done.stderr


def test_the_answer_says_the_value_first(fit: Fit) -> None:
    done = fit("train.py", "--memory", "256MiB", "--vary", "batch-size=1..16")
    assert done.stdout.startswith("batch-size 16 fits 256.0 MiB on NVIDIA H200")
    assert "the largest that was asked for" in done.stdout


def test_what_was_tried_is_remembered_until_the_script_changes(fit: Fit, tmp_path: Path) -> None:
    flags = ["train.py", "--memory", "256MiB", "--vary", "batch-size=1..4096", "--json", "-"]
    first, second = answer(fit(*flags)), answer(fit(*flags))
    assert first["remembered"] == 0
    assert second["remembered"] == len(second["tries"]) == len(first["tries"])
    assert answer(fit(*flags, "--forget"))["remembered"] == 0
    write(tmp_path, "train.py", TRAIN + "\n    pass\n")
    assert answer(fit(*flags))["remembered"] == 0


def test_arguments_may_say_where_the_value_goes(fit: Fit, tmp_path: Path) -> None:
    reading = "import sys; key, n = sys.argv[1].split('=')"
    source = TRAIN.replace("args = parser.parse_args()", reading)
    source = source.replace("args.batch_size * args.length", "int(n)")
    write(tmp_path, "hydra.py", source)
    done = fit("hydra.py", "--vary", "batch-size=1..4", "--json", "-", "--", "train.b=@batch-size")
    assert answer(done)["value"] == 4


def test_two_variables_have_a_frontier(fit: Fit) -> None:
    done = fit(
        "train.py",
        *("--memory", "512MiB", "--vary", "batch-size=1..65536", "--vary", "length=1,2,4"),
        *("--json", "-"),
    )
    points = answer(done)["frontier"]
    assert [point["length"] for point in points] == [1, 2, 4]
    batches = [point["batch-size"] for point in points]
    assert batches[1] == pytest.approx(batches[0] / 2, rel=0.02)
    assert batches[2] == pytest.approx(batches[0] / 4, rel=0.02)


def test_help_writes_a_margin_as_people_type_it(fit: Fit) -> None:
    help_text = fit("--help").stdout
    assert "--margin P%" in help_text
    assert "%%" not in help_text


def test_a_margin_stays_free(fit: Fit) -> None:
    flags = ["train.py", "--memory", "256MiB", "--vary", "batch-size=1..65536", "--json", "-"]
    whole, less = answer(fit(*flags)), answer(fit(*flags, "--margin", "20%"))
    assert less["value"] < whole["value"]
    assert less["peak_reserved"] <= 0.8 * 256 * 2**20


def test_a_result_that_is_not_monotonic_is_said(fit: Fit, tmp_path: Path) -> None:
    """Multiples of 8 take half as much as what lies between them."""
    rows = "args.batch_size * (1 if args.batch_size % 8 == 0 else 2) * 64"
    write(tmp_path, "odd.py", TRAIN.replace("args.batch_size * args.length", rows))
    done = fit("odd.py", "--memory", "256MiB", "--vary", "batch-size=1..512")
    assert done.returncode == 0, done.stderr
    value = int(done.stdout.split()[1])
    assert value % 8 == 0
    assert done.stdout.count("Not monotonic: ") == 1


def test_batches_are_tried_with_the_longest_examples(fit: Fit, tmp_path: Path) -> None:
    source = """
        import argparse
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int)
        args = parser.parse_args()
        examples = [torch.zeros(8, 256)] * 400 + [torch.zeros(512, 256)] * 100
        model = nn.Linear(256, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        for rows in DataLoader(examples, args.batch_size, collate_fn=torch.cat):
            model(rows.cuda()).sum().backward()
            optimizer.step()
    """
    write(tmp_path, "ragged.py", source)
    flags = ["ragged.py", "--memory", "128MiB", "--vary", "batch-size=1..64", "--json", "-"]
    longest, usual = answer(fit(*flags)), answer(fit(*flags, "--as-they-come"))
    assert usual["value"] == 64
    assert longest["value"] < 64


def test_every_distinct_rank_has_to_fit(fit: Fit, tmp_path: Path) -> None:
    source = """
        import argparse
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int)
        args = parser.parse_args()
        dist.init_process_group()
        rank = dist.get_rank()
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        part = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8 if rank else 1))).to(device)
        given = torch.zeros(args.batch_size, 256, device=device, requires_grad=rank > 0)
        out = torch.zeros_like(given, requires_grad=True)
        stage = PipelineStage(part, rank, 2, device, input_args=(given,), output_args=(out,))
        schedule = ScheduleGPipe(stage, 1, loss_fn=lambda y, t: (y - t).square().mean())
        optimizer = torch.optim.SGD(part.parameters())
        for _ in range(3):
            x = torch.zeros(args.batch_size, 256, device=device)
            schedule.step(*([] if rank else [x]), **({"target": x} if rank else {}))
            optimizer.step()
    """
    write(tmp_path, "stages.py", source)
    flags = ["stages.py", "--memory", "256MiB", "--vary", "batch-size=1..65536", "--json", "-"]
    first = answer(fit(*flags, "--world-size", "2"))
    both = answer(fit(*flags, "--world-size", "2", "--ranks", "all-distinct"))
    assert both["value"] < first["value"]


def test_nothing_fits_ends_with_3(fit: Fit) -> None:
    done = fit("train.py", "--memory", "2MiB", "--vary", "batch-size=4..16")
    assert done.returncode == 3
    assert done.stdout.startswith("No batch-size fits 2.000 MiB on NVIDIA H200: not even 4.")


def test_a_script_that_fails_ends_the_search_with_its_output(fit: Fit, tmp_path: Path) -> None:
    write(tmp_path, "broken.py", "raise KeyError('no such thing')\n")
    done = fit("broken.py", "--vary", "batch-size=1..16")
    assert done.returncode == 1
    assert "no such thing" in done.stderr
    assert "with batch-size 1 the script failed" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--vary is given once or twice"),
        (["--vary", "b=5..1"], "which is nothing"),
        (["--vary", "b=1..2", "--vary", "b=1..2"], "name the same"),
        (["--vary", "b=1..2", "--margin", "100%"], "--margin takes 0% to 99%"),
        (["--vary", "b=1..2", "--jobs", "0"], "--jobs takes a number from 1"),
    ],
)
def test_bad_usage_is_one_sentence(fit: Fit, flags: list[str], words: str) -> None:
    done = fit("train.py", *flags)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_place_for_a_value_that_nobody_varies_is_told(fit: Fit, tmp_path: Path) -> None:
    told = "no --vary is called size, so the script gets @size as it stands"
    assert told in fit("train.py", "--vary", "batch-size=4", "--", "--name=@size").stderr
    (tmp_path / "size").touch()  # a file of arguments
    assert told not in fit("train.py", "--vary", "batch-size=4", "--", "@size").stderr


def test_evaluation_that_does_not_fit_does_not_shrink_the_training_batch(
    fit: Fit, tmp_path: Path
) -> None:
    source = """
        import argparse
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int)
        args = parser.parse_args()
        data = TensorDataset(torch.zeros(4000, 256))
        model = nn.Linear(256, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        for epoch in range(2):
            for (x,) in DataLoader(data, args.batch_size):
                model(x.cuda()).sum().backward()
                optimizer.step()
            with torch.no_grad():
                kept = [model(x.cuda()).repeat(8, 1) for (x,) in DataLoader(data, args.batch_size)]
    """
    write(tmp_path, "evaluates.py", source)
    flags = ["evaluates.py", "--memory", "160MiB", "--vary", "batch-size=1..1024"]
    found = answer(fit(*flags, "--json", "-"))
    assert found["value"] < 1024
    assert found["training_value"] == 1024
    assert "Training alone fits up to 1024" in fit(*flags).stdout


def test_the_largest_batch_is_the_one_that_trained_on_an_h200(fit: Fit) -> None:
    """One of tests/data/max_batch_h200.jsonl; benchmarks/fit_limits.py has them all."""
    truth = [json.loads(line) for line in (DATA / "max_batch_h200.jsonl").read_text().splitlines()]
    (row,) = [row for row in truth if row["model"] == "lstm"]
    near = f"batch-size={row['largest'] - 8}..{row['largest'] + 8}"
    flags = ["--memory", row["memory"], "--vary", near, "--json", "-"]
    done = fit(str(EXAMPLES / "train_hf.py"), *flags, "--", "--model", "lstm")
    assert answer(done)["value"] == row["largest"], done.stderr


def test_a_curve_has_a_row_for_each_value(fit: Fit) -> None:
    flags = ["train.py", "--curve", "batch-size=64,4096", "--curve", "length=1..4"]
    done = fit(*flags, command="_estimate_script")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 2 * 3
    found = json.loads(fit(*flags, "--json", "-", command="_estimate_script").stdout)
    peaks = {(row["batch-size"], row["length"]): row["peak_allocated"] for row in found["curve"]}
    assert peaks[4096, 4] > peaks[4096, 1] > peaks[64, 1]
    assert peaks[4096, 4] == found["peak_allocated"]


def test_a_curve_is_drawn_into_an_svg_file_and_into_no_other(fit: Fit, tmp_path: Path) -> None:
    flags = ["train.py", "--curve", "batch-size=64,4096"]
    done = fit(*flags, "-o", "curve.svg", command="_estimate_script")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    refused = fit(*flags, "-o", "curve.png", command="_estimate_script")
    assert refused.returncode == 2
    assert "an .svg file" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_function_is_fitted_from_python() -> None:
    def train(batch: int) -> None:
        model = nn.Linear(1024, 1024, device="cuda")
        model(torch.zeros(batch, 1024, device="cuda")).pow(2).sum().backward()

    found = peakline.fit(train, memory="256MiB", low=1, high=100_000)
    assert found.value is not None
    assert int(found) == found.value
    assert found.tries[found.value]
    assert not found.tries[found.value + 1]
    less = peakline.fit(train, memory="256MiB", low=1, high=100_000, margin=0.2)
    assert less.value is not None
    assert less.value < 0.85 * found.value


def test_a_function_s_own_error_is_its_caller_s() -> None:
    def train(batch: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        peakline.fit(train, memory="64MiB", low=1, high=4)
    with pytest.raises(ValueError, match="nothing to try"):
        peakline.fit(train, low=2, high=1)
