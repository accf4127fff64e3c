"""How far `peakline estimate` runs a script, and whom it blames for what follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from estimate_support import Answer, Estimate, write

# As most examples: an epoch of training, then evaluation with larger batches, then a checkpoint.
EPOCHS = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.zeros(640, 16), torch.zeros(640, dtype=torch.long))
    train = DataLoader(data, batch_size=8, {options})
    test = DataLoader(data, batch_size=320)
    model = nn.Sequential(nn.Linear(16, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range({epochs}):
        model.train()
        for x, y in train:
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        batches = 0
        with torch.no_grad():
            for x, y in test:
                model(x.cuda())
                batches += 1
        print("evaluated", batches)
        torch.save(model.state_dict(), "model.pt")
        print("saved")
    print("the end")
"""


def epochs(folder: Path, count: int, options: str = "") -> None:
    write(folder, "epochs.py", EPOCHS.format(epochs=count, options=options))


@pytest.mark.parametrize("options", ["", "num_workers=1", "num_workers=1, persistent_workers=True"])
def test_evaluation_after_the_steps_is_in_the_peak(
    folder: Path, answer: Answer, options: str
) -> None:
    epochs(folder, 2, options)
    short = answer("epochs.py")
    whole = answer("epochs.py", "--steps", "all")
    assert short["peak_allocated"] == whole["peak_allocated"]
    assert short["peak_reserved"] == whole["peak_reserved"]
    assert short["steps_completed"] == 4  # three, and the next epoch's first
    assert whole["steps_completed"] == 160
    assert not [text for text in short["warnings"] if "not seen" in text]


def test_an_evaluation_that_takes_exactly_its_batches_is_seen_to_be_one(
    folder: Path, answer: Answer
) -> None:
    source = EPOCHS.replace("for x, y in test:", "for _, (x, y) in zip(range(2), test):")
    write(folder, "epochs.py", source.format(epochs=2, options=""))
    found = answer("epochs.py")
    assert not [text for text in found["warnings"] if "not seen" in text]


def test_the_epoch_ends_evaluation_and_save_run_and_the_next_epoch_ends_the_script(
    folder: Path, estimate: Estimate
) -> None:
    epochs(folder, 5)
    done = estimate("epochs.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("evaluated") == 1
    assert done.stderr.count("saved") == 1
    assert "the end" not in done.stderr


def test_a_script_of_one_epoch_ends_by_itself(folder: Path, estimate: Estimate) -> None:
    epochs(folder, 1)
    done = estimate("epochs.py")
    assert done.returncode == 0, done.stderr
    assert "the end" in done.stderr
    assert "3 steps of SGD" in done.stdout
    assert "not seen" not in done.stdout


def test_more_steps_than_a_script_has_are_no_failure(folder: Path, estimate: Estimate) -> None:
    epochs(folder, 1)
    done = estimate("epochs.py", "--steps", "1000000")
    assert done.returncode == 0
    assert "80 steps of SGD" in done.stdout
    assert "1000000" not in done.stdout


def test_what_no_dataloader_feeds_ends_with_its_steps_and_says_what_was_not_seen(
    folder: Path, estimate: Estimate
) -> None:
    done = estimate("train.py")
    assert "an evaluation, a checkpoint) was not seen" in " ".join(done.stdout.split())


def test_a_batch_taken_before_training_does_not_feed_it(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        from torch.utils.data import DataLoader
        fixed = next(iter(DataLoader(torch.zeros(64, 8), batch_size=8))).cuda()
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(fixed).sum().backward()
            optimizer.step()
    """
    write(folder, "fixed.py", source)
    found = answer("fixed.py", "--steps", "1")
    assert found["steps_completed"] <= 3
    assert any("not seen" in text for text in found["warnings"])


def test_accumulation_over_more_batches_than_an_evaluation_gets_still_comes_to_a_step(
    folder: Path, answer: Answer
) -> None:
    source = """
        import torch
        from torch.utils.data import DataLoader
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            for number, x in enumerate(DataLoader(torch.zeros(640, 8), batch_size=8), 1):
                model(x.cuda()).sum().backward()
                if number % 10 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    """
    write(folder, "accumulate.py", source)
    found = answer("accumulate.py", "--steps", "2", "--timeout", "60")
    assert found["steps_completed"] == 3
    assert found["partial"] is False
    assert any("evaluation was not seen" in text for text in found["warnings"])


def test_a_script_that_counts_on_every_batch_is_not_blamed_for_a_short_epoch(
    folder: Path, estimate: Estimate
) -> None:
    source = """
        import torch
        from torch.utils.data import DataLoader
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(torch.zeros(640, 8), batch_size=8)
        batches = iter(loader)
        for _ in range(len(loader)):
            model(next(batches).cuda()).sum().backward()
            optimizer.step()
    """
    write(folder, "counting.py", source)
    done = estimate("counting.py")
    assert done.returncode == 0, done.stderr
    assert "StopIteration" not in done.stderr
    assert "was not seen" in " ".join(done.stdout.split())


@pytest.mark.parametrize("ask", ["next(batches)", "next(doubled(batches))"])
def test_a_script_whose_batches_never_end_is_not_blamed_for_their_end(
    folder: Path, estimate: Estimate, ask: str
) -> None:
    source = f"""
        import torch
        from torch.utils.data import DataLoader, IterableDataset

        class Endless(IterableDataset):
            def __iter__(self):
                while True:
                    yield torch.zeros(8)

        def on_gpu(loader):
            for x in loader:
                yield x.cuda()

        def doubled(batches):
            while True:
                yield 2 * next(batches)

        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = on_gpu(DataLoader(Endless(), batch_size=8))
        while True:
            model({ask}).sum().backward()
            optimizer.step()
    """
    write(folder, "endless.py", source)
    done = estimate("endless.py", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "StopIteration" not in done.stderr
    found = json.loads(done.stdout)
    assert found["partial"] is False
    assert any("ended after 3 steps" in warning for warning in found["warnings"])


def test_a_stop_iteration_of_the_scripts_own_is_a_failure(folder: Path, estimate: Estimate) -> None:
    source = """
        import torch
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = iter([torch.zeros(8, 8)])
        while True:
            model(next(batches).cuda()).sum().backward()
            optimizer.step()
    """
    write(folder, "runs_out.py", source)
    assert estimate("runs_out.py").returncode == 1


COUNTS = """
    import torch
    from torch.utils.data import DataLoader
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train, test = (DataLoader(torch.zeros(640, 8), batch_size=8) for _ in range(2))
    for epoch in range(3):
        for x in train:
            model(x.cuda()).sum().backward()
            optimizer.step()
        seen = sum(len(model(x.cuda())) for x in test)
        {check}
"""


def test_a_script_that_counts_what_it_evaluates_is_not_blamed_for_a_short_evaluation(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "counts.py", COUNTS.format(check="assert seen == 640, 'some are missing'"))
    done = estimate("counts.py", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "AssertionError: some are missing" in done.stderr
    found = json.loads(done.stdout)
    assert found["partial"] is False
    assert any("ended early (AssertionError)" in warning for warning in found["warnings"])
    whole = estimate("counts.py", "--steps", "all", "--json", "-")
    assert whole.returncode == 0
    assert json.loads(whole.stdout)["peak_allocated"] == found["peak_allocated"]


COUNTS_TRAINING = """
    import torch
    from torch.utils.data import DataLoader
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = 0
    for x in DataLoader(torch.zeros(640, 8), batch_size=8):
        model(x.cuda()).sum().backward()
        optimizer.step()
        seen += len(x)
    {check}
"""


def test_a_script_that_counts_what_it_trained_on_is_not_blamed_for_a_short_epoch(
    folder: Path, estimate: Estimate
) -> None:
    check = "if seen < 640:\n        raise RuntimeError('some are missing')"
    write(folder, "counts.py", COUNTS_TRAINING.replace("{check}", check))
    done = estimate("counts.py", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "RuntimeError: some are missing" in done.stderr
    warnings = json.loads(done.stdout)["warnings"]
    assert any("epoch had been ended early (RuntimeError)" in warning for warning in warnings)


def test_a_mistake_after_a_short_epoch_is_the_scripts_own(folder: Path, estimate: Estimate) -> None:
    write(folder, "counts.py", COUNTS_TRAINING.replace("{check}", "model(torch.zeros(3).cuda())"))
    assert estimate("counts.py", "--json", "-").returncode == 1


def test_memory_that_runs_out_after_a_short_evaluation_still_does_not_fit(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "counts.py", COUNTS.format(check="torch.empty(1 << 40, device='cuda')"))
    assert estimate("counts.py", "--json", "-").returncode == 3


def test_the_scripts_annotations_are_not_turned_into_text(folder: Path, estimate: Estimate) -> None:
    source = """
        import torch
        def f(x: int) -> None: ...
        assert f.__annotations__["x"] is int
        torch.zeros(9, device="cuda")
    """
    write(folder, "annotated.py", source)
    assert estimate("annotated.py").returncode == 0
