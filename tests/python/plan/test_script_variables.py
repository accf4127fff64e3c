"""What a script calls its model and its optimizer, looked up while its own calls go on."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import Any

import torch

from peakline import _script_variables
from peakline._script_variables import unwrapped


def looked_up(folder: Path, source: str) -> tuple[list[tuple[str, str]], Any]:
    """`LOOK()` in the source is where the first step ends."""
    file = folder / "job.py"
    file.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(source).lstrip())
    spec = importlib.util.spec_from_file_location("job_of_test", file)
    assert spec is not None
    assert spec.loader is not None
    job = importlib.util.module_from_spec(spec)
    found: list[Any] = []

    def look() -> None:
        models, optimizers = _script_variables.models([]), _script_variables.optimizers()
        of_job = [one for one in models if one.place.scope.startswith(str(file))]
        found.append([(one.expression, one.place.words) for one in of_job])
        found.append(_script_variables.together(of_job, optimizers))

    job.LOOK = look  # type: ignore[attr-defined]
    spec.loader.exec_module(job)
    return found[0], found[1]


def test_the_last_line_before_the_step_that_gives_the_value_counts(tmp_path: Path) -> None:
    models, both = looked_up(
        tmp_path,
        """
        def main():
            net = None
            net = nn.Linear(2, 2)
            net = nn.Sequential(
                net,
            )
            steps = torch.optim.SGD(net.parameters())
            net.count = len(net)
            for epoch in range(1):
                net = net.train()
                LOOK()
            net = None

        main()
        """,
    )
    assert models == [("net", "after line 8 of job.py")]
    assert (both.model, both.optimizer, both.place) == ("net", "steps", "after line 9 of job.py")


def test_what_an_object_has_only_later_is_named_where_its_class_makes_it(tmp_path: Path) -> None:
    models, both = looked_up(
        tmp_path,
        """
        class Job:
            def __init__(self):
                self.net = nn.Linear(2, 2)
                self.steps = None

            def run(self):
                self.steps = torch.optim.SGD(self.net.parameters())
                LOOK()

        job = Job()
        job.run()
        """,
    )
    assert models[0] == ("job.net", "after line 12 of job.py")
    assert both is None  # no line knows both by these names


def test_an_optimizer_that_a_library_makes_is_not_said_to_be_there(tmp_path: Path) -> None:
    models, both = looked_up(
        tmp_path,
        """
        from types import SimpleNamespace

        net = nn.Linear(2, 2)
        trainer = SimpleNamespace(model=net, optimizer=None)
        trainer.optimizer = torch.optim.SGD(net.parameters())
        LOOK()
        """,
    )
    assert models == [
        ("net", "after line 5 of job.py"),
        ("trainer.model", "after line 6 of job.py"),
    ]
    assert both is None


def test_arguments_are_there_from_the_start(tmp_path: Path) -> None:
    models, both = looked_up(
        tmp_path,
        """
        def train(model, optimizer):
            LOOK()

        train(nn.Linear(2, 2), torch.optim.SGD([torch.zeros(1)]))
        """,
    )
    assert models == [("model", "at the start of train() in job.py")]
    assert both is not None


def test_looking_keeps_nothing_alive(tmp_path: Path) -> None:
    """Before Python 3.13 a function's frame keeps what was asked of it."""
    source = """
        import weakref

        def main():
            net = nn.Linear(2, 2)
            gone = weakref.ref(net)
            LOOK()
            del net
            return gone

        assert main()() is None
        """
    models, _ = looked_up(tmp_path, source)
    assert models == [("net", "after line 6 of job.py")]


def test_what_is_inside_of_compiled_and_parallel_modules() -> None:
    net = torch.nn.Linear(2, 2)
    compiled = torch.compile(net)
    assert list(unwrapped(compiled)) == [compiled, net]
    assert list(unwrapped(net)) == [net]
