"""`peakline plan --on dask:…`: many estimates, a worker that goes away, and nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peakline._plan import remote
from peakline._plan.errors import NoCluster
from peakline._plan.estimates import Result, Task

# Not the package's bare name: a folder that happens to be called so can be imported.
pytest.importorskip("distributed.scheduler", reason="Dask's distributed is not installed")

TRAIN = """
    import sys
    import torch
    from torch import nn

    rows = int(sys.argv[sys.argv.index("--rows") + 1])
    model = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    for step in range(5):
        model(torch.randn(rows, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
TASKS = 24


class Cluster:
    """A scheduler and two workers, as processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        file = folder / "scheduler.json"
        self._start("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", file=file)
        self.workers = [
            self._start(
                "distributed.cli.dask_worker",
                *("--nthreads", "1", "--no-dashboard", "--nanny", "--name", f"worker{i}"),
                file=file,
            )
            for i in range(2)
        ]
        while not file.exists():
            if self._all[0].poll() is not None:
                raise RuntimeError((folder / "dask.log").read_text())
            time.sleep(0.1)
        import json

        self.address = json.loads(file.read_text())["address"]

    _all: list[subprocess.Popen[bytes]]

    def _start(self, module: str, *args: str, file: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, "--scheduler-file", str(file), *args]
        log = open(self._folder / "dask.log", "ab")  # noqa: SIM115
        made = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
        )
        self._all = [*getattr(self, "_all", []), made]
        return made

    def kill(self, worker: int) -> None:
        """The worker, its nanny and what they run: a machine that goes away."""
        os.killpg(self.workers[worker].pid, signal.SIGKILL)

    def close(self) -> None:
        for process in self._all:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    monkeypatch.chdir(tmp_path)
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_worker_that_is_killed_half_way_loses_nothing(cluster: Cluster) -> None:
    from peakline._plan.on_dask import OnDask

    runner = OnDask(cluster.address)
    tasks = [Task(["train.py", "--", "--rows", str(256 * (i + 1))]) for i in range(TASKS)]
    found: dict[int, Result] = {}

    def done(number: int, result: Result) -> None:
        assert number not in found
        found[number] = result
        if len(found) == TASKS // 2:
            cluster.kill(0)

    runner.run(tasks, done, "train.py")
    runner.close()
    assert sorted(found) == list(range(TASKS))
    peaks = []
    for number in range(TASKS):
        answer = found[number].answer
        assert answer is not None, found[number].output
        peaks.append(answer["peak_allocated"])
    assert peaks == sorted(peaks)
    assert len(set(peaks)) == TASKS


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    from peakline._plan.on_dask import OnDask

    with pytest.raises(NoCluster, match=r"no Dask cluster answers at 'nowhere:1'") as error:
        OnDask("nowhere:1")
    assert "\n" not in str(error.value)


def test_a_process_that_goes_away_is_lost_and_the_next_is_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "die.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    monkeypatch.chdir(tmp_path)
    try:
        lost = remote.result(remote.run(remote.order(Task(["die.py"]), None)))
        assert lost.lost
        task = Task(["train.py", "--", "--rows", "256"])
        assert remote.result(remote.run(remote.order(task, None))).answer is not None
    finally:
        remote.close_all()
