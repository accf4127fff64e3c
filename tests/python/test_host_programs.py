"""What the programs that measure a host count, and what is found from their times."""

from __future__ import annotations

import pytest

from peakline import _host_programs


@pytest.fixture(scope="module")
def counts() -> dict[str, list[list[float]]]:
    return _host_programs.counts()


def test_forward_backward_and_optimizer_count_their_own_kinds(
    counts: dict[str, list[list[float]]],
) -> None:
    trained = [parts for name, parts in counts.items() if "evaluated" not in name]
    assert len(trained) == 5
    for forward, backward, optimizer in trained:
        assert forward[0] > 100  # ops of the program
        assert forward[1] == 0
        assert backward[1] > 200  # ops of autograd
        assert optimizer[2] > 300  # Python
        assert optimizer[0] == 0  # nothing is recorded there
        assert optimizer[3] > 5


def test_what_is_not_recorded_is_counted_apart(counts: dict[str, list[list[float]]]) -> None:
    recorded, plain = counts["gated"][0], counts["gated, evaluated"][0]
    assert recorded[3] == 0
    assert plain[0] == plain[1] == 0
    assert plain[3] == pytest.approx(recorded[0], rel=0.1)


def test_a_checkpointed_program_runs_its_python_again_in_backward(
    counts: dict[str, list[list[float]]],
) -> None:
    plain, again = counts["attention"], counts["attention, checkpointed"]
    assert again[1][0] > 0.8 * plain[0][0]
    assert again[1][2] > 100 * plain[1][2]


def test_prices_that_made_the_times_are_found_again(counts: dict[str, list[list[float]]]) -> None:
    prices = (11.0, 14.0, 0.8, 7.0)
    times = {
        name: [sum(n * us for n, us in zip(part, prices, strict=True)) for part in parts]
        for name, parts in counts.items()
    }
    found = _host_programs.fitted(times, counts)
    assert list(found.values()) == pytest.approx(prices, rel=0.01)
