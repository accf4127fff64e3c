"""A loop that waits for a value nobody can know is told of within seconds."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import peakline
from peakline._ending import EndlessQuestion
from peakline._virtual_cuda import _questions
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
        questions.went_on()
    assert capsys.readouterr().err == ""


def questions_of_each_turn(turns: Iterator[object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many turns a loop makes that asks in each of them, where 20 questions are too many."""
    monkeypatch.setattr(_questions, "ENDLESS", 20)
    done = 0
    with peakline.virtual_gpu("h200"):
        unknown = torch.rand(4, device="cuda")
        for _ in turns:
            unknown.sum().item()
            done += 1
    return done


def test_a_loop_over_a_dataset_may_ask_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(50, 1)))
    assert questions_of_each_turn(iter(loader), monkeypatch) == 50


def test_a_table_of_the_host_may_be_filled_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_questions, "ENDLESS", 20)
    table = torch.zeros(60, 1)
    with peakline.virtual_gpu("h200"):
        unknown = torch.rand(4, device="cuda")
        for row in range(60):
            table[row, 0] = unknown.sum()


def test_one_part_that_is_copied_again_and_again_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_questions, "ENDLESS", 20)
    flags = torch.zeros(2)
    with peakline.virtual_gpu("h200"):
        unknown = torch.rand(4, device="cuda")

        def wait() -> None:
            for turn in range(60):
                flags[turn % 2] = unknown.sum()

        with pytest.raises(EndlessQuestion):
            wait()


def test_a_loop_without_an_end_of_its_own_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            while True:
                yield torch.zeros(1)

    for turns in (itertools.count(), iter(DataLoader(Endless()))):
        with pytest.raises(EndlessQuestion):
            questions_of_each_turn(turns, monkeypatch)


def test_generation_may_ask_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(_questions, "ENDLESS", 20)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1
    )
    with peakline.virtual_gpu("h200"), torch.inference_mode():
        model = transformers.LlamaForCausalLM(config).to("cuda").eval()
        prompt = torch.randint(3, 100, (1, 4), device="cuda")
        made = model.generate(prompt, max_new_tokens=40, do_sample=False)
    assert made.shape == (1, 44)
