"""How `peakline fit` looks for a value, without a script to try it with."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakline._fit import variables
from peakline._fit.search import Found, Try, largest


def search(
    fits: Callable[[int], bool], values: Sequence[int], jobs: int = 1, need: int = 10
) -> tuple[Found, list[int]]:
    asked: list[int] = []

    def ask(wanted: Sequence[int]) -> list[Try]:
        asked.extend(wanted)
        return [Try(fits(value), value * need, 1000 - value * need) for value in wanted]

    return largest(values, ask, jobs), asked


@given(st.integers(0, 600), st.integers(1, 512), st.integers(1, 4), st.integers(1, 40))
def test_the_largest_that_fits_is_found_and_nothing_is_asked_twice(
    limit: int, high: int, jobs: int, need: int
) -> None:
    found, asked = search(lambda value: value <= limit, range(1, high + 1), jobs, need)
    assert found.value == (min(limit, high) or None)
    assert len(asked) == len(set(asked))


def test_memory_that_grows_in_a_straight_line_takes_five_tries() -> None:
    found, asked = search(lambda value: value * 10 <= 1000, range(1, 513))
    assert found.value == 100
    assert asked == [1, 2, 100, 101, 104]


def test_a_gap_between_allocated_and_reserved_does_not_lead_the_search_astray() -> None:
    """As a step that is mostly its optimizer's at small batches, with 3 GiB of fragments."""
    asked: list[int] = []

    def ask(wanted: Sequence[int]) -> list[Try]:
        asked.extend(wanted)
        found = []
        for batch in wanted:
            allocated = max(14020 + 250 * batch, 8500 + 1050 * batch)
            reserved = allocated + 3000
            found.append(Try(reserved <= 24000, allocated, 24000 - reserved))
        return found

    assert largest(range(1, 65), ask).value == 11
    assert len(asked) <= 9, asked


def test_lines_that_end_a_little_too_early_do_not_cost_a_bisection_of_everything() -> None:
    """As seen with a training script whose reserved memory shrinks from one batch to the next."""
    reserved = {1: 1201, 2: 1545, 67: 22530, 71: 23860, 72: 23630, 73: 23950}
    asked: list[int] = []

    def ask(values: Sequence[int]) -> list[Try]:
        asked.extend(values)
        needs = [reserved.get(value, 340 * value) for value in values]
        return [Try(need <= 24000, need, 24000 - need) for need in needs]

    assert largest(range(1, 513), ask).value == 73
    assert len(asked) <= 9, asked


def test_nothing_fits_is_known_after_one_try() -> None:
    found, asked = search(lambda value: False, range(8, 513))
    assert found.value is None
    assert asked == [8]


def test_what_fits_again_above_is_found_and_said() -> None:
    found, _ = search(lambda value: value <= 100 or value == 104, range(1, 513))
    assert found.value == 104
    assert found.exceptions == [(101, 104)]


def test_a_value_in_eight_that_fits_is_found_without_trying_all() -> None:
    """As a program that pads odd batches to twice their size."""

    def need(value: int) -> int:
        return value if value % 8 == 0 else 2 * value

    asked: list[int] = []

    def ask(wanted: Sequence[int]) -> list[Try]:
        asked.extend(wanted)
        return [Try(need(value) <= 300, need(value), 300 - need(value)) for value in wanted]

    found = largest(range(1, 513), ask)
    assert found.value == 296
    assert len(asked) < 20, asked


def test_a_gap_in_what_fits_ends_between_two_multiples() -> None:
    found, asked = search(lambda value: value <= 90 and value not in (50, 51), range(1, 513), 1, 11)
    assert found.value == 90
    assert len(asked) < 20, asked


def test_a_range_of_a_thousand_million_is_searched_at_once() -> None:
    found, _ = search(lambda value: value <= 100, range(1, 10**9))
    assert found.value == 100


def test_memory_that_grows_with_the_square_takes_little_more_than_bisection() -> None:
    asked: list[int] = []

    def ask(wanted: Sequence[int]) -> list[Try]:
        asked.extend(wanted)
        return [Try(value**2 <= 10**9, value**2, 10**9 - value**2) for value in wanted]

    assert largest(range(1, 65537), ask).value == 31622
    assert len(asked) <= 16 + 6, asked


def test_a_list_of_values_is_searched_as_a_range_is() -> None:
    found, _ = search(lambda value: value <= 100, [1, 16, 64, 128, 256])
    assert found.value == 64


@pytest.mark.parametrize(
    ("text", "values"),
    [("batch-size=1..4", [1, 2, 3, 4]), ("length=512,128", [128, 512]), ("n=7", [7])],
)
def test_what_to_vary_is_a_range_or_a_list(text: str, values: list[int]) -> None:
    assert list(variables.parse(text).values) == values


@pytest.mark.parametrize("text", ["batch", "=1..2", "b=2..1", "b=1..", "b=x", "b=1,,2", "b=-1"])
def test_what_cannot_be_varied_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"takes NAME=|is nothing"):
        variables.parse(text)


def test_a_curve_s_range_doubles_to_its_end() -> None:
    points = variables.doubling(variables.parse("length=1024..32768")).values
    assert list(points) == [1024, 2048, 4096, 8192, 16384, 32768]
    assert list(variables.doubling(variables.parse("b=1..6")).values) == [1, 2, 4, 6]


def test_a_script_gets_its_value_as_a_flag_or_where_it_says_so() -> None:
    values = {"batch-size": 8, "length": 128}
    assert variables.with_values(["--lr", "1"], {"batch-size": 8}) == [
        "--lr",
        "1",
        "--batch-size",
        "8",
    ]
    assert variables.with_values(["train.batch=@batch-size", "n=@length"], values) == [
        "train.batch=8",
        "n=128",
    ]
    assert variables.with_values(["-b@batch-size"], values) == ["-b8", "--length", "128"]


def test_a_name_that_begins_another_is_not_taken_for_it() -> None:
    values = {"batch-size": 8, "batch-size-eval": 2}
    assert variables.with_values(["@batch-size-eval", "@batch-size"], values) == ["2", "8"]
