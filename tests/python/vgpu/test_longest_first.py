"""`--longest-first`: the first batches are made of the longest examples."""

from collections import UserDict
from pathlib import Path

import numpy
import torch
from estimate_support import Answer, write
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from peakline._estimate.longest import LongestFirst, _size


class Sentences(Dataset[torch.Tensor]):
    def __init__(self, *lengths: int) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(self._lengths[index])


def together(examples: list[torch.Tensor]) -> list[int]:
    return [len(example) for example in examples]


def batches(data: Dataset[torch.Tensor], *args: object, **kwargs: object) -> list[list[int]]:
    longest = LongestFirst()
    with longest.watched():
        loader = DataLoader(data, *args, collate_fn=together, **kwargs)  # type: ignore[arg-type]
        found = list(loader)
        assert len(found) == len(loader)
    return found


def test_the_first_batches_are_of_the_longest_and_as_large_as_they_were() -> None:
    data = Sentences(1, 2, 9, 3, 8, 4, 7)
    assert batches(data, 2) == [[9, 8], [9, 8], [9, 8], [9]]
    assert batches(data, 2, shuffle=True)[0] == [9, 8]
    assert batches(data, 2, num_workers=1)[0] == [9, 8]


def test_examples_of_one_size_keep_their_order() -> None:
    longest = LongestFirst()
    with longest.watched():
        loader = DataLoader(Sentences(*[5] * 20), 4)
        assert type(loader._index_sampler) is BatchSampler
    assert longest.sentences() == []


def test_later_batches_are_the_script_s_own() -> None:
    data = Sentences(*range(1, 101))
    found = batches(data, 1)
    assert found[:16] == [[100]] * 16
    assert found[16:] == [[length] for length in range(17, 101)]


def test_a_sampler_of_batches_is_left_alone() -> None:
    class ByLength(BatchSampler):
        pass

    data = Sentences(1, 2, 9, 3)
    sampler = ByLength(SequentialSampler(data), 2, False)
    assert batches(data, batch_sampler=sampler) == [[1, 2], [9, 3]]


def test_looking_at_examples_changes_no_chance() -> None:
    class Random(Sentences):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(super().__getitem__(index).shape)

    def drawn(order: LongestFirst | None) -> float:
        torch.manual_seed(1)
        data = Random(3, 1, 2)
        loader = DataLoader(data, 1, sampler=RandomSampler(data))
        if order is not None:
            order._longest(loader)
        return torch.rand(()).item()

    assert drawn(LongestFirst()) == drawn(None)


def test_an_example_is_as_long_as_what_is_in_it() -> None:
    assert _size({"ids": [1, 2, 3], "text": "four"}) == 7
    assert _size(UserDict(ids=torch.zeros(2, 3))) == 6
    assert _size((numpy.zeros((2, 2)), 1)) == 5
    assert _size([]) == 0


def test_an_estimate_sees_the_longest_and_says_so(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        from torch import nn

        data = [torch.zeros(length, 256) for length in (1, 2, 4000, 3, 5)]
        model = nn.Linear(256, 256).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        for rows in torch.utils.data.DataLoader(data, 1):
            model(rows.cuda()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    write(folder, "varies.py", source)
    usual = answer("varies.py", "--steps", "2")
    longest = answer("varies.py", "--steps", "2", "--longest-first")
    assert longest["peak_allocated"] > usual["peak_allocated"] + 7_000_000
    said = [line for line in longest["warnings"] if line.startswith("batches begin")]
    assert said == [
        "batches begin with the longest of 5 examples; all were looked at. That shows the most "
        "that is allocated. What is reserved depends on the order: it may be more in the script's "
        "own, where there is room for it"
    ]
