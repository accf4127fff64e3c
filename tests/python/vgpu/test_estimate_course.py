"""How far `peakline estimate` runs a script, and what counts as a step."""

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


OWN_OPTIMIZER = """
    import torch

    class Own:  # no torch.optim.Optimizer
        def __init__(self, parameters):
            self.parameters = list(parameters)

        def step(self):
            for parameter in self.parameters:
                parameter.data.add_(parameter.grad, alpha=-0.1)
                parameter.grad = None

    class Trainer:
        def __init__(self):
            self.model = torch.nn.Linear(64, 64).cuda()
            self.optimizer = Own(self.model.parameters())

        def train_step(self):
            for _ in range(2):  # accumulation
                self.model(torch.zeros(8, 64, device="cuda")).sum().backward()
            self.optimizer.step()

    def main():
        trainer = Trainer()
        for step in range(300):
            trainer.train_step()
            print("step", step)

    if __name__ == "__main__":
        main()
"""


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


def test_steps_of_an_optimizer_that_torch_does_not_know_are_guessed_and_the_guess_is_said(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "own.py", OWN_OPTIMIZER)
    done = estimate("own.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("step") == 3
    assert "3 steps of parameter updates in" in done.stdout.splitlines()[0]
    assert "no optimizer of torch's made a step" in done.stdout
    assert "--step-on" in done.stdout


ACCUMULATES = """
    import torch
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for n in range(40):
        loss = model(torch.randn(8, 64, device="cuda")).sum()
        loss.backward()
        {between}
        if n % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "between",
    [
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
        "model.zero_grad()",
        "torch._foreach_add_([p.data for p in model.parameters()], 1e-3)",
        "with torch.no_grad(): model.weight.add_(1e-3)",
    ],
    ids=["clipping", "clearing", "changing data", "half a step"],
)
def test_what_happens_before_an_optimizer_steps_is_no_step(
    folder: Path, answer: Answer, between: str
) -> None:
    write(folder, "accumulates.py", ACCUMULATES.format(between=between))
    found = answer("accumulates.py")
    assert (found["steps_completed"], found["steps_by"]) == (3, "Adam")


def test_an_optimizer_that_never_steps_is_not_waited_for_longer(
    folder: Path, answer: Answer
) -> None:
    idle = ACCUMULATES.replace("range(40)", "range(100_000)").replace("n % 8 == 7", "False")
    write(folder, "idle.py", idle.format(between="model.zero_grad()"))
    found = answer("idle.py")
    assert (found["steps_completed"], found["steps_by"]) == (3, "parameter updates")


LONG_STEP = """
    import torch
    class Searches(torch.optim.Optimizer):
        def step(self, closure):
            for _ in range(100_000):
                closure()
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = Searches(model.parameters(), {})
    x = torch.randn(8, 8, device="cuda")
    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    torch.zeros(1 << 40, device="cuda")
"""


def test_a_step_that_evaluates_its_closure_on_and_on_is_ended(folder: Path, answer: Answer) -> None:
    write(folder, "long.py", LONG_STEP)
    found = answer("long.py")
    assert found["fits"] is True
    assert any("its closure 300 times" in warning for warning in found["warnings"])


def test_step_on_names_a_method_of_the_script(folder: Path, estimate: Estimate) -> None:
    write(folder, "own.py", OWN_OPTIMIZER)
    done = estimate("own.py", "--step-on", "__main__.Trainer.train_step")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("step") == 2  # the third ended it inside
    assert "3 steps of __main__.Trainer.train_step" in done.stdout


def test_step_on_names_a_function_of_another_module(folder: Path, answer: Answer) -> None:
    write(folder, "helper.py", "class T:\n    def go(self, model, x):\n        return model(x)\n")
    source = """
        import torch
        from helper import T
        model = torch.nn.Linear(8, 8).cuda()
        for _ in range(50):
            T().go(model, torch.zeros(8, 8, device="cuda"))
    """
    write(folder, "infer.py", source)
    found = answer("infer.py", "--step-on", "helper.T.go")
    assert found["steps_completed"] == 3
    assert found["steps_by"] == "helper.T.go"


def test_step_on_forward_counts_calls_of_the_outermost_module(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
        for _ in range(50):
            model(torch.zeros(8, 8, device="cuda"))
    """
    write(folder, "infer.py", source)
    assert answer("infer.py", "--step-on", "forward", "--steps", "5")["steps_completed"] == 5
    assert answer("infer.py")["steps_completed"] == 0  # to its end


def test_step_on_something_that_is_never_called_is_said(folder: Path, answer: Answer) -> None:
    write(folder, "infer.py", "import helper, torch\ntorch.zeros(9, device='cuda')\n")
    found = answer("infer.py", "--step-on", "helper.missing")
    assert any("was never called" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.Trainer.step", "names nowhere.Trainer.step, and there is no module nowhere"),
        ("Trainee.step", "there is no module Trainee"),
        ("__main__.Trainee.step", "names Trainee, which the script does not define"),
        ("train_step", "names train_step, which the script does not define"),
    ],
)
def test_step_on_something_that_cannot_be_is_refused_before_the_script_runs(
    folder: Path, estimate: Estimate, name: str, sentence: str
) -> None:
    write(folder, "own.py", OWN_OPTIMIZER)
    done = estimate("own.py", "--step-on", name)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "step 0" not in done.stderr


@pytest.mark.parametrize("name", ["own.go", "Own.go", "own.Own.go"])
def test_step_on_takes_the_scripts_own_names_as_they_are_written_there(
    folder: Path, estimate: Estimate, name: str
) -> None:
    body = "def go():\n    torch.zeros(9, device='cuda')\n"
    if "Own" in name:
        body = (
            "class Own:\n    @staticmethod\n    def go():\n        torch.zeros(9, device='cuda')\n"
        )
    loop = "for _ in range(9):\n    " + ("Own.go()" if "Own" in name else "go()")
    write(folder, "own.py", f"import torch\n{body}{loop}\n")
    assert (
        f"3 steps of __main__.{name.removeprefix('own.')}"
        in estimate("own.py", "--step-on", name).stdout
    )


def test_step_on_finds_what_a_star_brings(folder: Path, estimate: Estimate) -> None:
    write(folder, "helper.py", "import torch\ndef go():\n    torch.zeros(9, device='cuda')\n")
    write(folder, "infer.py", "from helper import *\nfor _ in range(9):\n    go()\n")
    assert "3 steps of __main__.go" in estimate("infer.py", "--step-on", "go").stdout


WRAPPED = """
    import torch

    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            self.inner.step()
            torch.zeros(2**20, device="cuda")  # after the inner one

    model = torch.nn.Linear(64, 64).cuda()
    optimizer = Around(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(100):
        model(torch.zeros(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        print("step", step)
"""


def test_a_wrapper_around_an_optimizer_makes_one_step_a_call(folder: Path, answer: Answer) -> None:
    write(folder, "wrapped.py", WRAPPED)
    found = answer("wrapped.py")
    assert found["steps_completed"] == 3
    assert found["steps_by"] == "Around"


SHARDED = """
    import torch

    class Sharded:  # no optimizer of torch's, and steps its own once for each group
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.param_groups = list(optimizer.param_groups)

        def step(self):
            for group in self.param_groups:
                self.optimizer.param_groups = [group]
                self.optimizer.step()

    layers = [torch.nn.Linear(64, 64).cuda() for _ in range(3)]
    groups = [{"params": layer.parameters()} for layer in layers]
    optimizer = Sharded(torch.optim.SGD(groups, lr=0.1))
    for step in range(100):
        torch.nn.Sequential(*layers)(torch.zeros(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        print("made", step)
"""


def test_a_wrapper_that_steps_its_optimizer_once_for_each_group_makes_one_step(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "sharded.py", SHARDED)
    done = estimate("sharded.py", "--json", "answer.json")
    found = json.loads((folder / "answer.json").read_text())
    assert (found["steps_completed"], found["steps_by"]) == (3, "Sharded")
    assert done.stderr.count("made") == 2  # the third is ended at its end


def test_a_new_attempt_with_a_new_optimizer_is_counted(folder: Path, answer: Answer) -> None:
    source = """
        import torch

        def attempt(batch):
            model = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(200):
                model(torch.zeros(batch, 64, device="cuda")).sum().backward()
                optimizer.step()
                if batch > 8:
                    raise RuntimeError("too much")

        for batch in (16, 8):
            try:
                attempt(batch)
            except RuntimeError:
                pass
    """
    write(folder, "attempts.py", source)
    assert answer("attempts.py")["steps_completed"] <= 4


def test_the_scripts_annotations_are_not_turned_into_text(folder: Path, estimate: Estimate) -> None:
    source = """
        import torch
        def f(x: int) -> None: ...
        assert f.__annotations__["x"] is int
        torch.zeros(9, device="cuda")
    """
    write(folder, "annotated.py", source)
    assert estimate("annotated.py").returncode == 0


CAPTURED = """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.empty(4096, 1024, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    print("captured")
    for i in range(1000000):
        graph.replay()
"""


def test_steps_that_warm_up_for_a_capture_do_not_count(answer: Answer, folder: Path) -> None:
    """What is captured needs a pool of its own, and replays are steps."""
    write(folder, "captured.py", CAPTURED)
    found = answer("captured.py")
    assert len(found["steps"]) == 7  # three to warm up, the captured one, three replays
    assert found["step_ms"] > 0.1


CRITIC = """
    import torch
    critic, generator = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(64, 64).cuda()
    often = torch.optim.SGD(critic.parameters())
    seldom = torch.optim.Adam(generator.parameters())
    for n in range(100):
        critic(generator(torch.randn(8, 64, device="cuda"))).sum().backward()
        often.step()
        if n % 5 == 4:
            seldom.step()
"""


def test_an_optimizer_that_made_no_step_is_told(folder: Path, answer: Answer) -> None:
    write(folder, "critic.py", CRITIC)
    told = (
        "Adam over 4,160 parameters made no step in the 3 steps, so what it keeps is not counted; "
        "--steps 30 shows more"
    )
    assert told in answer("critic.py")["warnings"]
    assert not any("no step" in line for line in answer("critic.py", "--steps", "6")["warnings"])
