"""A loop that waits for a value nobody can know is told of within seconds."""

from __future__ import annotations

import re

import pytest

from peakline._virtual_cuda._questions import Questions


def test_a_slow_loop_is_told_of_after_a_few_seconds_and_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    questions = Questions(clock=lambda: now[0])
    for _ in range(200):
        now[0] += 0.1
        questions.asked("item", "branch")
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "test_waiting_questions.py" in told[0]
    assert re.search(r"asked 5\d times in 5 seconds", told[0])
    assert "--values" in told[0]


def test_a_loop_that_steps_is_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    questions = Questions(clock=lambda: now[0])
    for _ in range(200):
        now[0] += 0.1
        questions.asked("item", "branch")
        questions.new_step()
    assert capsys.readouterr().err == ""
