"""Whatever is asked of a mask that nobody can know: of one mask all answers are true."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import peakline

Question = Callable[[torch.Tensor], object]

QUESTIONS: dict[str, Question] = {
    "elements": lambda mask: mask.tolist(),
    "elements of the opposite": lambda mask: (~mask).tolist(),
    "first": lambda mask: bool(mask[0]),
    "last": lambda mask: mask[-1].item(),
    "any": lambda mask: bool(mask.any()),
    "all": lambda mask: bool(mask.all()),
    "not any": lambda mask: bool((~mask).any()),
    "not all": lambda mask: bool(mask.logical_not().all()),
    "how many": lambda mask: mask.sum().item(),
    "how many not": lambda mask: (~mask).sum().item(),
    "how many, as a count": lambda mask: mask.count_nonzero().item(),
    "how many not, as a count": lambda mask: mask.logical_not().count_nonzero().item(),
    "how many, as numbers": lambda mask: mask.int().sum().item(),
    "how many, as fractions": lambda mask: mask.float().sum().item(),
    "share": lambda mask: round(mask.float().mean().item() * len(mask)),
    "largest": lambda mask: mask.int().max().item(),
    "smallest": lambda mask: mask.int().min().item(),
    "running count": lambda mask: mask.cumsum(0).tolist(),
    "none": lambda mask: bool(mask.sum() == 0),
    "one": lambda mask: bool(mask.sum() == 1),
    "two": lambda mask: bool(mask.sum() == 2),
    "one not": lambda mask: bool((~mask).sum() == 1),
    "two not": lambda mask: bool((~mask).sum() == 2),
    "everything": lambda mask: bool(mask.sum() == mask.numel()),
    "everything, differently": lambda mask: bool((~mask).sum() == 0),
    "at least one": lambda mask: bool(mask.sum() > 0),
    "equal to yes": lambda mask: (mask == True).tolist(),  # noqa: E712
    "beside itself": lambda mask: bool((mask ^ mask).any()),
}


def numbers(size: int) -> torch.Tensor:
    return torch.randn(size, device="cuda")


MASKS: dict[str, Callable[[int], torch.Tensor]] = {
    "larger than a number": lambda size: numbers(size) > 0,
    "smaller than a number": lambda size: numbers(size) < 0,
    "predictions": lambda size: (
        torch.randn(size, 10, device="cuda").argmax(1) == torch.arange(size, device="cuda")
    ),
    "two unknown ones": lambda size: numbers(size) == numbers(size),
    "unequal": lambda size: numbers(size) != numbers(size),
    "end of a text": lambda size: torch.randint(0, 9, (size,), device="cuda") == 3,
    "nothing is known": lambda size: torch.empty(size, dtype=torch.bool, device="cuda"),
    "probable": lambda size: torch.rand(size, device="cuda") > 0.5,
    "finite": lambda size: numbers(size).isfinite(),
    "both": lambda size: (numbers(size) > 0) & (numbers(size) == numbers(size)),
    "partly known": lambda size: torch.cat(
        [torch.ones(1, dtype=torch.bool, device="cuda"), numbers(size) == numbers(size)]
    ),
}


@pytest.mark.parametrize("kind", MASKS)
@given(size=st.integers(1, 6), asked=st.permutations(sorted(QUESTIONS)), most=st.integers(1, 28))
@settings(max_examples=25, deadline=None)
def test_one_mask_satisfies_all_answers(kind: str, size: int, asked: list[str], most: int) -> None:
    names = asked[:most]
    with peakline.virtual_gpu():
        mask = MASKS[kind](size)
        length = len(mask)
        answers = {name: QUESTIONS[name](mask) for name in names}
    candidates = (torch.tensor(bits) for bits in itertools.product([False, True], repeat=length))
    assert any(
        all(QUESTIONS[name](candidate) == answers[name] for name in names)
        for candidate in candidates
    ), answers


def test_that_all_are_so_and_one_is_not_is_never_answered_together() -> None:
    with peakline.virtual_gpu():
        mask = numbers(5) > 0
        assert bool(mask.sum() == mask.numel())
        assert not bool((~mask).sum() == 1)
        assert (~mask).sum().item() == 0
