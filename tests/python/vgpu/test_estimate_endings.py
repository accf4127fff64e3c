"""How a script ended, and what `peakline estimate` then says and exits with."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from estimate_support import Answer, Estimate, write

import peakline
from peakline._ending import ScriptExited
from peakline._estimate import all_ranks
from peakline._estimate.deadline import caught_os_exit

STEPS = """
    import os, sys, time, threading
    import torch
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range({steps}):
        model(torch.zeros(8, 1024, device="cuda")).sum().backward()
        optimizer.step()
    {end}
"""


def ending(folder: Path, end: str, steps: int = 2) -> None:
    write(folder, "ending.py", STEPS.format(end=end, steps=steps))


def told(done: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("raise ValueError('broken')", 1),
        ("sys.exit(5)", 1),
        ("os._exit(7)", 1),
        ("os._exit(0)", 0),
        ("raise KeyboardInterrupt", 130),
        ("while True: time.sleep(0.01)", 124),
    ],
)
def test_what_ran_before_the_end_is_answered_as_partial_and_kept(
    folder: Path, estimate: Estimate, end: str, status: int
) -> None:
    ending(folder, end)
    done = estimate("ending.py", "--json", "-", "-o", "run.peak", "--timeout", "20")
    assert done.returncode == status, done.stderr
    found = told(done)
    assert found["partial"] is True
    assert found["steps_completed"] == 2
    assert found["peak_allocated"] > 4 * 2**20
    assert peakline.load(folder / "run.peak").peak("cuda:0").bytes == found["peak_allocated"]
    if "broken" in end:
        assert done.stderr.startswith("Traceback")
        assert "_estimate" not in done.stderr


@pytest.mark.parametrize(
    "end", ["raise ValueError('broken')", "os._exit(7)", "while True: time.sleep(0.01)"]
)
def test_what_ran_before_the_end_fits_only_so_far(
    folder: Path, estimate: Estimate, end: str
) -> None:
    ending(folder, end)
    done = estimate("ending.py", "--memory", "1GiB", "-o", "run.peak", "--timeout", "20")
    assert "fits so far, " in done.stdout, done.stdout
    kept = peakline.load(folder / "run.peak")
    assert "fits so far, " in str(kept)
    assert json.loads(kept.to_json())["partial"] is True
    assert any("so this is the memory of what ran before" in line for line in kept.warnings)


def test_a_run_whose_block_failed_fits_only_so_far() -> None:
    def block() -> None:
        torch.empty(2**20, device="cuda")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), peakline.virtual_gpu(memory="1GiB") as run:
        block()
    assert "fits so far" in str(run)
    assert run.warnings == [
        "the block ended with ValueError, so this is the memory of what ran before"
    ]


def test_one_rank_that_did_not_end_makes_the_whole_answer_partial() -> None:
    row = {"device": "cuda:0", "peak_reserved": 2, "fits": True, "ooms": 0}
    whole = row | {"rank": 0, "peak_allocated": 2, "partial": False, "warnings": ["w"]}
    cut = row | {"rank": 3, "peak_allocated": 1, "partial": True, "warnings": ["it failed"]}
    found = all_ranks.largest([whole, cut])
    assert (found["rank"], found["partial"]) == (0, True)
    assert found["warnings"] == ["rank 3: it failed", "w"]


def test_a_script_that_swallows_everything_is_ended_by_the_timeout_all_the_same(
    folder: Path, estimate: Estimate
) -> None:
    once = "try:\n        time.sleep(60)\n    except:\n        pass\n    time.sleep(60)"
    ending(folder, once)
    done = estimate("ending.py", "--timeout", "8", "--json", "-")
    assert done.returncode == 124
    assert "the time was up (8 s)" in done.stderr


def test_os_exit_in_a_child_process_ends_only_the_child(folder: Path, estimate: Estimate) -> None:
    ending(folder, "pid = os.fork()\n    if pid == 0: os._exit(3)\n    os.waitpid(pid, 0)")
    done = estimate("ending.py", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert told(done)["partial"] is False


def test_os_exit_in_a_thread_still_gives_the_answer(folder: Path) -> None:
    ending(folder, "threading.Thread(target=lambda: os._exit(4)).start(); time.sleep(60)")
    command = [sys.executable, "-m", "peakline._estimate_script", "ending.py", "--json", "-"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert told(done)["partial"] is True


def _until_ready(folder: Path, end: str, *flags: str) -> Any:
    """The running estimate of a script that has come to `end`."""
    ending(folder, "print('ready', file=sys.stderr, flush=True); " + end)
    command = [sys.executable, "-m", "peakline._estimate_script", "ending.py", *flags]
    running = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's job ignores it
    )
    assert running.stderr is not None
    while running.stderr.readline() != "ready\n":
        assert running.poll() is None
    return running


# Python's handler of a signal waits for the main thread, which some code keeps to itself.
DEAF = "import ctypes; libc = ctypes.CDLL(None); [libc.sleep(9) for _ in range(99)]"


def test_ctrl_c_in_a_process_of_its_own_answers_for_what_ran(folder: Path) -> None:
    running = _until_ready(folder, "time.sleep(300)")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=300)
    assert running.returncode == 130
    assert "; partial" in out.splitlines()[0]


@pytest.mark.parametrize("end", ["time.sleep(300)", DEAF], ids=["waits", "deaf"])
def test_sigterm_answers_for_what_ran_and_keeps_it(folder: Path, end: str) -> None:
    running = _until_ready(folder, end, "--json", "-", "-o", "run.peak")
    running.terminate()
    out, err = running.communicate(timeout=300)
    assert running.returncode == 143, err
    assert "the script was ended by SIGTERM, so this is the memory of what ran before" in err
    found = json.loads(out)
    assert found["partial"] is True
    assert found["steps_completed"] == 2
    assert peakline.load(folder / "run.peak").peak("cuda:0").bytes == found["peak_allocated"]


def test_sigterm_in_a_child_ends_only_the_child(folder: Path, answer: Answer) -> None:
    child = (
        "import signal; pid = os.fork()\n    if pid == 0: time.sleep(300)\n"
        "    time.sleep(0.5); os.kill(pid, signal.SIGTERM)\n"
        "    assert os.waitpid(pid, 0)[1] == signal.SIGTERM; time.sleep(3)"
    )
    ending(folder, child)
    assert answer("ending.py")["partial"] is False


def test_an_exception_of_ours_ends_the_script_with_its_own_status(
    folder: Path, estimate: Estimate
) -> None:
    source = """
        import torch
        from peakline._ending import Ending
        class Endless(Ending):
            status, partial = 124, True
        torch.zeros(9, device="cuda")
        try:
            raise Endless("line 6 asks the same question again and again")
        except Exception:
            pass
    """
    write(folder, "endless.py", source)
    done = estimate("endless.py", "--json", "-")
    assert done.returncode == 124
    assert told(done)["partial"] is True
    assert "asks the same question again and again" in told(done)["warnings"][0]


def test_a_first_allocation_that_is_too_big_does_not_fit(folder: Path, estimate: Estimate) -> None:
    write(folder, "big.py", "import torch\nx = torch.empty(2**30, device='cuda')\n")
    done = estimate("big.py", "--memory", "1GiB", "--json", "-")
    assert done.returncode == 3, done.stderr
    found = told(done)
    assert found["fits"] is False
    assert found["device"] == "cuda:0"
    assert found["needed_reserved"] == 4 * 2**30
    assert "Would do" in estimate("big.py", "--memory", "1GiB").stdout


FIND_BATCH = """
    import torch

    def attempt(batch):
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.zeros(batch, 1024, device="cuda")).sum().backward()
            optimizer.step()

    batch = 2**16
    while True:
        if batch == {least}:
            raise RuntimeError("No executable batch size found, reached zero.")
        try:
            attempt(batch)
        except torch.OutOfMemoryError:
            batch //= 2
        else:
            break
"""


def test_an_oom_that_the_script_turns_into_its_own_error_does_not_fit(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "find.py", FIND_BATCH.format(least=2**14))
    done = estimate("find.py", "--memory", "32MiB", "--json", "-")
    assert done.returncode == 3, done.stderr
    found = told(done)
    assert found["fits"] is False
    assert found["ooms"] == 2
    assert found["needed_reserved"] > 512 * 2**20  # of the batch that was asked for


def test_a_smaller_batch_that_then_trains_fits(folder: Path, estimate: Estimate) -> None:
    write(folder, "find.py", FIND_BATCH.format(least=0))
    done = estimate("find.py", "--memory", "128MiB", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = told(done)
    assert found["fits"] is True
    assert found["needed_reserved"] is None
    assert any("the script went on by itself" in text for text in found["warnings"])


def test_an_unrelated_failure_after_a_survived_oom_is_the_scripts(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "find.py", FIND_BATCH.format(least=0) + "\n    1 / 0\n")
    assert estimate("find.py", "--memory", "128MiB", "--steps", "all").returncode == 1


@pytest.mark.parametrize(
    ("given", "question"), [("24", "24GiB?"), ("1000KiB", "24GiB?"), ("1000000", "1000000KiB?")]
)
def test_memory_below_a_mebibyte_is_refused_with_a_question(
    folder: Path, estimate: Estimate, given: str, question: str
) -> None:
    done = estimate("train.py", "--memory", given)
    assert done.returncode == 2
    assert f"did you mean {question}" in done.stderr


def test_what_the_first_pass_made_does_not_disturb_the_second(
    folder: Path, estimate: Estimate
) -> None:
    source = """
        import os, torch
        os.mkdir("out")
        with open("out/log.txt", "x") as log:
            log.write("began")
        x = torch.empty(2**29, device="cuda")
    """
    write(folder, "makes.py", source)
    done = estimate("makes.py", "--memory", "1GiB", "--json", "-")
    assert told(done)["needed_reserved"] == 2 * 2**30
    assert (folder / "out" / "log.txt").read_text() == "began"


def test_what_forward_held_when_memory_ran_out_is_activation(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        layers = [torch.nn.Linear(1024, 1024) for _ in range(64)]
        model = torch.nn.Sequential(*layers).cuda()
        model(torch.zeros(4096, 1024, device="cuda", requires_grad=True)).sum().backward()
    """
    write(folder, "deep.py", source)
    found = answer("deep.py", "--memory", "512MiB")
    assert found["by_category"]["Activation"] > 100 * 2**20
    assert found["by_category"].get("Temp", 0) < 2**20


def test_an_os_exit_that_the_script_put_in_place_stays_and_leaves_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with caught_os_exit(lambda ending: None):
        caught = os._exit

        def with_a_word(status: int) -> None:
            caught(status)

        os._exit = with_a_word
    assert os._exit is with_a_word
    with contextlib.suppress(ScriptExited):
        os._exit(3)
    assert left == [3]
