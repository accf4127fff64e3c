"""Scripts that train in a thread, or leave threads and processes behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from estimate_support import write

TRAIN = """
    import multiprocessing, queue, sys, threading, time
    from concurrent.futures import ThreadPoolExecutor
    import torch

    def train(steps=100):
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(steps):
            model(torch.randn(8, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    def report(queue):
        train(2)
        queue.put(5)

    def act(queue):
        while True:
            queue.put(1)

    if __name__ == "__main__":
"""


def run(folder: Path, main: str, *args: str) -> subprocess.CompletedProcess[str]:
    write(folder, "leaving.py", TRAIN + "".join(f"        {line}\n" for line in main.split("; ")))
    command = [sys.executable, "-m", "peakline._estimate_script", "leaving.py", "--json", "-"]
    return subprocess.run(
        [*command, *args], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("main", "steps"),
    [
        ("one = threading.Thread(target=train); one.start(); one.join(); time.sleep(99)", 3),
        ("threading.Thread(target=train, args=(2,)).start()", 2),
        ("executor = ThreadPoolExecutor(); executor.submit(train).result()", 3),
    ],
)
def test_a_script_that_trains_in_a_thread_is_answered(
    tmp_path: Path, main: str, steps: int
) -> None:
    done = run(tmp_path, main)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert (found["steps_completed"], found["partial"]) == (steps, False)
    assert found["peak_allocated"] > 16 * 2**20  # parameters, gradients, Adam's two


@pytest.mark.parametrize(
    "start",
    [
        "threading.Thread(target=act, args=(queue.Queue(4),)).start()",
        "executor = ThreadPoolExecutor(); executor.submit(act, queue.Queue(4))",
        "multiprocessing.set_start_method('fork'); full = multiprocessing.Queue(4)"
        "; multiprocessing.Process(target=act, args=(full,)).start()",
    ],
)
def test_what_a_script_that_was_ended_leaves_running_is_not_waited_for(
    tmp_path: Path, start: str
) -> None:
    done = run(tmp_path, start + "; train()")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps_completed"] == 3
    told = "what 1 process that the script started may do on a GPU is not counted"
    assert (told in found["warnings"]) == ("multiprocessing" in start)


MODEL_BYTES = 4 * (1024 * 1024 + 1024)
PAIR = (
    "; [one.start() for one in pair]; [one.join() for one in pair]"
    "; assert [one.exitcode for one in pair] == [0, 0]; time.sleep(0)"
)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_of_processes_that_a_script_starts_to_train_the_first_is_estimated(
    tmp_path: Path, method: str
) -> None:
    start = f"start = multiprocessing.get_context('{method}').Process"
    done = run(tmp_path, start + "; pair = [start(target=train) for _ in range(2)]" + PAIR)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps_completed"] == 3
    kept = [found["by_category"][name] for name in ("Parameter", "Gradient", "Optstate")]
    assert MODEL_BYTES <= kept[0] < kept[0] + kept[1] + kept[2] < 4.1 * MODEL_BYTES
    assert any("of the 2 processes that the program starts to train" in one
               for one in found["warnings"])  # fmt: skip
    assert not any("is not counted" in one for one in found["warnings"])


def test_a_process_that_ends_hands_its_results_to_the_script(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import torch.multiprocessing as mp; full = mp.Queue()"
        "; one = mp.Process(target=report, args=(full,)); one.start(); assert full.get() == 5"
        "; one.join(); assert one.exitcode == 0 and not one.is_alive()"
        "; failing = mp.Process(target=report); failing.start(); failing.join()"
        "; assert failing.exitcode == 1",
    )
    assert done.returncode == 0, done.stderr
    assert "TypeError: report() missing 1 required positional argument" in done.stderr


def test_what_plays_or_loads_in_a_process_stays_there(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "start = multiprocessing.get_context('fork').Process; full = multiprocessing.Queue(4)"
        "; one = start(target=act, args=(full,)); one.start(); full.get(); one.terminate()",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "peakline: the script used no GPU memory, so there is nothing to estimate; of the "
        "processes that a script starts, those are looked into whose function calls backward() or "
        "init_process_group(), and of 1 process none does so in its own text"
    )
