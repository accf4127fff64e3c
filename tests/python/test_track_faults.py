"""Whatever of ours fails while a run is tracked turns tracking off with one warning; the numbers of
the run stay what they are."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import peakline
from peakline import _C
from peakline.track import _RUNNING, Tracker
from track_models import Net

TURNED_OFF = "peakline has turned tracking off"


def losses(steps: int = 3) -> list[float]:
    """Training with everything that tracking watches: modules, backward, optimizers, closures."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # in processes of their own, too: sums depend on it
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for _ in range(steps):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(torch.randn(8, 64)).square().mean()
            loss.backward()
            return loss

        found.append(float(optimizer.step(closure)))
    return found


class FailingSession:
    """A session whose nth call fails; `calls` counts them."""

    def __init__(self, session: _C.Session, failing: int, error: Exception) -> None:
        self._session, self._failing, self._error = session, failing, error
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._session, name)
        if not callable(value) or name in ("fail", "on_fault", "stop", "info"):
            return value

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls == self._failing:
                raise self._error
            return value(*args)

        return call


def tracked(
    monkeypatch: pytest.MonkeyPatch, failing: int, error: Exception
) -> tuple[FailingSession, list[float], list[str]]:
    sessions: list[FailingSession] = []
    real = Tracker._open_session

    def open_session(self: Any, *args: Any) -> Any:
        sessions.append(FailingSession(real(self, *args), failing, error))
        return sessions[0]

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(Tracker, "_open_session", open_session)
        with peakline.track():
            found = losses()
    return sessions[0], found, [str(warning.message) for warning in caught]


def test_a_failure_at_any_call_of_ours_costs_the_tracking_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = losses()
    counting, found, told = tracked(monkeypatch, 0, MemoryError())
    assert found == expected
    assert told == []
    assert counting.calls > 20
    for failing in range(1, counting.calls + 1):
        _, found, told = tracked(monkeypatch, failing, MemoryError())
        assert found == expected
        assert told == [f"{TURNED_OFF}, and the run goes on without it: out of memory"]
    assert losses() == expected  # and torch is as it was


def test_a_module_that_cannot_be_named_turns_tracking_off_once() -> None:
    class Nameless(Net):
        def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            raise RuntimeError("no names today")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with peakline.track() as run:
            for _ in range(3):
                Nameless()(torch.randn(8, 64)).sum().backward()
    assert len(told) == 1
    assert any("no names today" in warning for warning in run.warnings)


def test_warnings_that_are_errors_do_not_end_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with peakline.track() as run:
            _RUNNING[-1].faults.turn_off(OSError("cannot write 'x': disk full"))
            assert losses() == losses()
    assert "the run goes on without it: cannot write 'x': disk full" in capsys.readouterr().err
    assert any("disk full" in warning for warning in run.warnings)


def in_fresh_process(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parent,
        **options,
    )


def limited_files(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


TRAIN = """
    from test_track_faults import losses
    import peakline, sys
    with peakline.track({max_size}) as run:
        print(losses(40), flush=True)
    try:
        print("steps", len(run.steps), *run.warnings)
    except ValueError as error:
        print("none:", error)
"""


@pytest.mark.parametrize("size", [0, 10, 16, 200, 3000, 9000])
def test_a_full_disk_costs_the_tracking_and_what_was_written_opens(size: int) -> None:
    done = in_fresh_process(TRAIN.format(max_size=""), preexec_fn=limited_files(size))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(losses(40))
    assert done.stderr.count(TURNED_OFF) == 1
    last = done.stdout.splitlines()[1]
    assert "was not tracked" in last or "could not be written" in last, last


def test_a_folder_without_permission_costs_the_tracking_only(tmp_path: Path) -> None:
    gone = str(tmp_path / "not" / "there")
    done = in_fresh_process(TRAIN.format(max_size=""), env={**os.environ, "TMPDIR": gone})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(losses(40))
    assert done.stderr.count(TURNED_OFF) == 1
    assert "this run was not tracked: cannot create a temporary file" in done.stdout


def test_a_script_whose_disk_fills_up_ends_with_its_own_status(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    folder = str(Path(__file__).parent)
    script.write_text(
        f"import sys\nsys.path.insert(0, {folder!r})\n"
        "from test_track_faults import losses\nprint(losses(40))\nsys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "peakline._run_script", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limited_files(4000),
    )
    assert done.returncode == 7
    assert done.stdout.strip() == str(losses(40))
    assert done.stderr.count(TURNED_OFF) == 1
    recording = peakline.load(tmp_path / "train.peak")
    assert any("turned off" in warning or "written" in warning for warning in recording.warnings)


def test_a_torch_without_one_of_its_internals_costs_what_is_watched_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.fx._symbolic_trace import _Patcher

    expected = losses()
    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patch.delattr(_Patcher, "revert_all_patches")
        with peakline.track() as run:
            assert losses() == expected
    assert len(told) == 1
    assert "does not watch modules after torch.fx traced" in str(told[0].message)
    assert len(run.steps) == 3
    assert run.peak().by_category["Parameter"] > 0


def test_importing_and_leaving_change_nothing_in_torch() -> None:
    code = """
        import torch
        from torch.autograd.variable import Variable
        from torch.optim.optimizer import _global_optimizer_pre_hooks
        def state():
            return (Variable._execution_engine, torch.nn.Module.__dict__.get("__init_subclass__"),
                    torch.UntypedStorage.resize_, torch.nn.Module.__call__,
                    len(_global_optimizer_pre_hooks))
        before = state()
        import peakline
        assert state() == before, "importing"
        for _ in range(1000):
            with peakline.track():
                pass
        assert state() == before, "a thousand times in and out"
        import threading, os
        assert threading.active_count() == 1
        assert len(os.listdir("/proc/self/fd")) < 40, os.listdir("/proc/self/fd")
        print("same")
    """
    done = in_fresh_process(code)
    assert done.stdout == "same\n", done.stderr
