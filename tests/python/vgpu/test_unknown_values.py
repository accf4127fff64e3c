"""What follows about values that nobody can know: logic, ranges, and what a healthy run has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import peakline


@pytest.fixture
def gpu() -> Iterator[peakline.virtual_gpu]:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        yield gpu


def unknown(*shape: int) -> torch.Tensor:
    """Numbers of which nothing is known."""
    return torch.randn(*shape, device="cuda")


def unknown_bools(*shape: int) -> torch.Tensor:
    return unknown(*shape) > 0.25


def asked(gpu: peakline.virtual_gpu) -> int:
    return gpu.counters()["unknown_values"]


YES = [True, True, True]
NO = [False, False, False]


def test_what_decides_by_itself_decides_beside_the_unknown(gpu: peakline.virtual_gpu) -> None:
    u = unknown_bools(3)
    yes, no = torch.ones_like(u), torch.zeros_like(u)
    for found, expected in [
        (yes | u, YES),
        (u | yes, YES),
        (no & u, NO),
        (torch.logical_or(u, yes), YES),
        (torch.logical_and(u, no), NO),
        (~(u & no), YES),
        (u * no, NO),
        (u | True, YES),
        (u & False, NO),
        (torch.where(u, yes, yes), YES),
        (u.clone().logical_or_(yes), YES),
    ]:
        assert found.tolist() == expected
    assert asked(gpu) == 0
    assert not any("nobody can know" in note for note in gpu.notes())


def test_a_number_outside_of_an_interval_is_not_in_it(gpu: peakline.virtual_gpu) -> None:
    ids = torch.randint(3, 32000, (2, 8), device="cuda")
    ends = torch.tensor([0, 1, 2], device="cuda")
    assert not torch.isin(ids, ends).any()
    assert not torch.isin(ids, 0).any()
    assert torch.isin(ids, ends, invert=True).all()
    known = torch.tensor([1, 7], device="cuda")
    assert torch.isin(known, ends).tolist() == [True, False]
    assert asked(gpu) == 0


def test_a_number_that_may_be_in_a_set_is_asked_for(gpu: peakline.virtual_gpu) -> None:
    ids = torch.randint(0, 32000, (2, 8), device="cuda")
    assert not torch.isin(ids, torch.tensor([0, 2], device="cuda")).any()
    assert asked(gpu) == 1


def test_a_prompt_in_which_no_padding_is_found_is_attended_to(
    gpu: peakline.virtual_gpu,
) -> None:
    """As generate of transformers makes its mask, and asks whether it can do without."""
    ids = torch.randint(0, 32000, (2, 8), device="cuda")
    padding = torch.isin(ids, torch.tensor(0, device="cuda")).any()
    ones = torch.ones(2, 8, dtype=torch.long, device="cuda")
    mask = (ids.ne(0).long() * padding + ones * ~padding).bool()
    assert mask.all()
    assert mask.sum() == mask.numel()


def test_numbers_that_are_made_up_are_equal_to_no_other(gpu: peakline.virtual_gpu) -> None:
    for low in (0, 1):
        assert not (torch.randint(low, 9, (1,), device="cuda") == 1).item()


def test_any_and_all_are_known_where_one_element_decides(gpu: peakline.virtual_gpu) -> None:
    u = unknown_bools(3)
    mixed = torch.cat([u, torch.ones(1, dtype=torch.bool, device="cuda")])
    assert mixed.any().item() is True
    assert (~mixed).all().item() is False
    assert mixed.float().max().item() == 1.0
    assert mixed.cumsum(0)[-1].item() >= 1
    assert torch.stack([u, u | True]).any(0).tolist() == YES
    assert asked(gpu) == 1  # the sum


def test_zero_absorbs_and_one_does_not(gpu: peakline.virtual_gpu) -> None:
    x = unknown(3)
    assert (x * 0).tolist() == [0, 0, 0]
    assert (x * torch.tensor([0.0, 0.0, 0.0], device="cuda")).sum().item() == 0
    assert asked(gpu) == 0
    _ = (x * 1).tolist()
    assert asked(gpu) == 1


def test_extremes_are_neutral_or_absorbing(gpu: peakline.virtual_gpu) -> None:
    x = unknown(3)
    top = torch.full_like(x, float("inf"))
    assert torch.maximum(x, top).tolist() == [float("inf")] * 3
    assert torch.minimum(x, -top).tolist() == [-float("inf")] * 3
    assert bool((x.clamp(-2, 2) <= 2).all())
    assert bool((torch.minimum(x, torch.zeros_like(x)) <= 0).all())
    assert asked(gpu) == 0


def test_elements_are_known_one_by_one(gpu: peakline.virtual_gpu) -> None:
    row = torch.zeros(4, device="cuda")
    row[1] = unknown(1)[0]
    row[2] = 7
    assert row[2].item() == 7
    assert (row + 1)[0].item() == 1
    assert torch.cat([row, row[2:]])[-2].item() == 7
    assert row.flip(0)[1].item() == 7
    assert asked(gpu) == 0
    assert row.tolist()[2:] == [7, 0]
    assert asked(gpu) == 1


def test_a_tensor_equals_itself(gpu: peakline.virtual_gpu) -> None:
    x = unknown(4, 4)
    big = unknown(1024, 1024)
    assert bool((x == x).all())
    assert not bool((x != x).any())
    assert bool((x <= x).all())
    assert (x - x).abs().sum().item() == 0
    assert torch.equal(x, x)
    assert bool((big == big).all())
    assert not bool(torch.isnan(big).any())
    assert asked(gpu) == 0


RANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a softmax lies in 0 to 1": lambda x: (x.softmax(-1) >= 0) & (x.softmax(-1) <= 1),
    "its logarithm is not above 0": lambda x: x.log_softmax(-1) <= 0,
    "a sigmoid lies in 0 to 1": lambda x: (x.sigmoid() >= 0) & (1 - x.sigmoid() >= 0),
    "tanh lies in -1 to 1": lambda x: x.tanh().abs() <= 1,
    "exp is not negative": lambda x: x.exp() >= 0,
    "a square is not negative": lambda x: x**2 >= 0,
    "a product with itself is not negative": lambda x: x * x >= 0,
    "an absolute value is not negative": lambda x: x.abs() >= 0,
    "relu is not negative": lambda x: x.relu() >= 0,
    "a norm is not negative": lambda x: torch.linalg.vector_norm(x) >= 0,
    "a standard deviation is not negative": lambda x: x.std() >= 0,
    "sums of squares are not negative": lambda x: x.square().sum(-1).sqrt() >= 0,
    "argmax is an index": lambda x: (x.argmax(-1) >= 0) & (x.argmax(-1) < x.shape[-1]),
    "topk's places are indices": lambda x: x.topk(2).indices < x.shape[-1],
    "max's place is an index": lambda x: x.max(-1).indices < x.shape[-1],
    "sort's places are indices": lambda x: x.sort(-1).indices < x.shape[-1],
    "multinomial draws indices": lambda x: torch.multinomial(x.softmax(-1), 2) < x.shape[-1],
    "moved indices stay indices": lambda x: x.argmax(-1).repeat(3).flip(0)[1:] < x.shape[-1],
    "rand lies in 0 to 1": lambda x: torch.rand_like(x) <= 1,
    "randint lies in its range": lambda x: torch.randint(3, 9, (5,), device="cuda") >= 3,
    "a permutation has indices": lambda x: torch.randperm(9, device="cuda") < 9,
    "everything is finite": lambda x: torch.isfinite(x),
    "nothing is infinite": lambda x: ~torch.isinf(x),
    "so is what is computed": lambda x: torch.isfinite((x @ x.t()).exp().sum()),
}


@pytest.mark.parametrize("size", [8, 1024])
@pytest.mark.parametrize("name", RANGES)
def test_ranges_follow_from_the_op(gpu: peakline.virtual_gpu, name: str, size: int) -> None:
    assert bool(RANGES[name](unknown(size, size)).all())
    assert asked(gpu) == 0


def test_answers_lie_in_their_range(gpu: peakline.virtual_gpu) -> None:
    x = unknown(4, 4)
    assert 0 < x.softmax(-1)[0, 0].item() < 1
    assert x.log_softmax(-1)[0, 0].item() < 0
    assert torch.randint(3, 9, (), device="cuda").item() == 3
    assert torch.linalg.vector_norm(x).item() == pytest.approx(1)


def test_places_of_a_mask_s_elements_are_indices(gpu: peakline.virtual_gpu) -> None:
    places = (unknown(4, 20) > 0).nonzero()
    asked_for_sizes = asked(gpu)
    assert bool((places >= 0).all())
    assert bool((places < 20).all())
    assert asked(gpu) == asked_for_sizes
    # As prompt lookup of transformers cuts what follows a match out of the prompt.
    start = places[-1, 1] + 3
    assert bool(start < torch.clamp(start + 3, max=20))


def test_what_follows_from_an_answer_agrees_with_it(gpu: peakline.virtual_gpu) -> None:
    loss = unknown(8).sum()
    told = loss.item()
    assert bool(loss > 0.5) == (told > 0.5)
    assert bool(loss < 0.5) == (told < 0.5)
    assert bool(loss > -1e9)
    assert bool(~(loss < 0.5))


def test_two_unknown_numbers_are_different_unless_they_must_be_equal(
    gpu: peakline.virtual_gpu,
) -> None:
    token = unknown(4, 8).argmax(-1)
    assert not bool((token == 1).any())
    assert bool((token != 1).all())


def test_known_infinities_stay_what_they_are(gpu: peakline.virtual_gpu) -> None:
    scores = torch.zeros(4, device="cuda").masked_fill(
        torch.arange(4, device="cuda") > 1, -torch.inf
    )
    assert torch.isinf(scores).tolist() == [False, False, True, True]
    mixed = scores + unknown(4)
    assert torch.isinf(mixed).tolist() == [False, False, True, True]
    assert asked(gpu) == 0


def test_a_large_constant_is_known(gpu: peakline.virtual_gpu) -> None:
    zeros = torch.zeros(4096, 4096, device="cuda")
    assert zeros.sum().item() == 0
    assert not bool(zeros.bool().any())
    ones = torch.ones(4096, 4096, device="cuda")
    assert ones.sum().item() == 4096 * 4096
    assert (ones + 1).max().item() == 2
    assert asked(gpu) == 0


def test_values_written_after_a_read_are_put_off_and_right(gpu: peakline.virtual_gpu) -> None:
    x = torch.arange(4, device="cuda")
    y = x * 2
    x.add_(10)
    x[0] = 5
    z = x + y
    y.zero_()
    host = torch.tensor([1, 1, 1, 1])
    z += host.cuda()
    host.fill_(100)
    assert z.tolist() == [6, 14, 17, 20]
    assert x.tolist() == [5, 11, 12, 13]
    assert y.tolist() == [0, 0, 0, 0]


def test_nothing_is_computed_until_somebody_asks(gpu: peakline.virtual_gpu) -> None:
    x = torch.arange(1000, device="cuda")
    for _ in range(10):
        x = x * 2 % 7
    assert gpu.counters()["values"] == 0
    expected = torch.arange(1000)
    for _ in range(10):
        expected = expected * 2 % 7
    assert x.tolist() == expected.tolist()
    assert gpu.counters()["values"] > 0


def test_long_chains_are_computed_on_the_way(gpu: peakline.virtual_gpu) -> None:
    step = torch.zeros((), device="cuda")
    for _ in range(5000):
        step += 1
    assert gpu.counters()["values"] > 4000  # and 1000s of them are not kept
    assert step.item() == 5000


def test_cpu_work_of_the_program_keeps_its_threads() -> None:
    before = torch.get_num_threads()
    with peakline.virtual_gpu("h200"):
        torch.set_num_threads(3)
        assert torch.arange(100, device="cuda").sum().item() == 4950
        assert torch.get_num_threads() == 3
        torch.set_num_threads(before)
    assert torch.get_num_threads() == before


def test_a_long_history_of_unknown_values_does_not_hide_what_is_known(
    gpu: peakline.virtual_gpu,
) -> None:
    unfinished = torch.ones(3, dtype=torch.long, device="cuda")
    for _ in range(200):
        unfinished = unfinished & ~unknown_bools(3)
    assert bool((unfinished <= 1).all())
    assert (unfinished & False).tolist() == [0, 0, 0]
    assert (unfinished & ~(unknown_bools(3) | True)).max().item() == 0
    assert asked(gpu) == 0


def test_no_bits_are_left_beside_zero(gpu: peakline.virtual_gpu) -> None:
    anything = unknown(3).long()
    assert (anything & 0).tolist() == [0, 0, 0]
    assert asked(gpu) == 0


def test_only_unknown_elements_of_a_mask_are_counted_by_share() -> None:
    with peakline.virtual_gpu("h200", values={"nonzero": 0.5}):
        mask = torch.ones(8, dtype=torch.bool, device="cuda")
        mask[:4] = unknown_bools(4)
        assert mask.nonzero().shape == (6, 1)
        assert (mask & False).nonzero().shape == (0, 1)


def test_no_more_different_values_than_there_can_be(gpu: peakline.virtual_gpu) -> None:
    labels = torch.randint(0, 10, (5000,), device="cuda")
    assert labels.unique().shape == (10,)
    assert torch.bincount(labels).shape == (10,)


def test_of_several_predictions_a_healthy_run_has_one_right_and_not_all(
    gpu: peakline.virtual_gpu,
) -> None:
    labels = torch.arange(100, device="cuda") % 10
    correct = unknown(100, 10).argmax(1) == labels
    assert correct.sum().item() == 1
    assert correct.float().sum().item() == 1
    assert correct.float().mean().item() == pytest.approx(0.01)
    assert correct.view(20, 5).sum(0).tolist() == [1, 0, 0, 0, 0]
    assert correct.ne(True).sum().item() == 99


def test_one_prediction_alone_is_taken_to_be_wrong(gpu: peakline.virtual_gpu) -> None:
    token = unknown(1, 10).argmax(1)
    assert (token == 3).sum().item() == 0
    assert (token == 3).float().mean().item() == 0
    assert torch.zeros(9, device="cuda").ne(0).sum().item() == 0
    assert unknown(9).isnan().sum().item() == 0


def test_as_many_are_nonzero_as_places_were_set(gpu: peakline.virtual_gpu) -> None:
    """As a sampler of proposals makes its masks."""
    places = torch.randperm(1000, device="cuda")
    positive = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    negative = torch.zeros_like(positive)
    positive[places[:128]] = 1
    negative[places[128:512]] = 1
    assert torch.where(positive)[0].shape == (128,)
    assert torch.where(positive | negative)[0].shape == (512,)
    assert torch.where(torch.cat([positive, negative]))[0].shape == (512,)
    positive[places[:4]] = 1
    assert positive.nonzero().shape == (132, 1)
    kept = torch.zeros(10, 10, dtype=torch.bool, device="cuda").scatter_(1, places[:10, None], True)
    assert torch.randn(10, 10, device="cuda")[kept].shape == (10,)
    rows = torch.zeros(10, 10, dtype=torch.bool, device="cuda").index_fill_(0, places[:2], True)
    assert rows.nonzero().shape == (20, 2)


def test_of_a_mask_that_was_never_empty_all_places_may_be_set(gpu: peakline.virtual_gpu) -> None:
    mask = torch.ones(100, dtype=torch.bool, device="cuda")
    mask[torch.randperm(100, device="cuda")[:3]] = False
    assert mask.nonzero().shape == (100, 1)
    mask = unknown_bools(100)
    mask[torch.randperm(100, device="cuda")[:3]] = True
    assert mask.nonzero().shape == (100, 1)


@pytest.mark.parametrize("size", [4, 1 << 20])  # an interval for each element, one for all
def test_zeros_beside_a_loss_do_not_make_it_zero(gpu: peakline.virtual_gpu, size: int) -> None:
    loss = torch.randn(size, device="cuda")
    zeros = torch.zeros(size, device="cuda")
    assert torch.cat([loss, zeros]).norm().item() > 1e-5
    assert torch.cat([zeros, loss]).norm().item() > 1e-5
    loss[: size // 2] = 0
    assert loss.norm().item() > 1e-5
