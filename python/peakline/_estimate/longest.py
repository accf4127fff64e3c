"""Batches that begin with the longest examples: what fits those fits all of them.

A script's first batches are those of a few steps, and a longer one may come later. Where examples
of a DataLoader differ in size, its first batches are made of the largest ones that were found.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

_FEW = 8  # examples; where these are of one size, all are taken to be
_MOST = 512  # examples that are looked at, evenly spread
_BATCHES = 16  # that are made of the longest: several steps, and what they accumulate


class LongestFirst:
    def __init__(self) -> None:
        self._ranked: dict[int, list[int]] = {}  # of each dataset: indices, the longest first
        self._kept: list[Any] = []  # the datasets, so that no other one gets their number
        self._said: list[str] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        loader: Any = DataLoader
        original = loader._index_sampler

        def index_sampler(of: Any) -> Any:
            sampler = original.fget(of)
            ranked = self._longest(of) if type(of.batch_sampler) is BatchSampler else []
            return _Reordered(sampler, ranked) if ranked else sampler

        loader._index_sampler = property(index_sampler)
        try:
            yield
        finally:
            loader._index_sampler = original

    def sentences(self) -> list[str]:
        return self._said

    def _longest(self, loader: Any) -> list[int]:
        dataset = loader.dataset
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            return []
        number = id(dataset)
        if number not in self._ranked:
            self._kept.append(dataset)
            self._ranked[number] = []  # whoever asks while it is looked at
            with _same_chance(), contextlib.suppress(Exception):
                self._ranked[number] = self._rank(dataset)
        return self._ranked[number]

    def _rank(self, dataset: Any) -> list[int]:
        count = len(dataset)
        if len({_size(dataset[i]) for i in _spread(count, _FEW)}) < 2:
            return []
        looked_at = _spread(count, _MOST)
        sizes = {i: _size(dataset[i]) for i in looked_at}
        some = "all" if len(looked_at) == count else f"{len(looked_at):,} of them, evenly spread,"
        self._said.append(
            f"batches begin with the longest of {count:,} examples; {some} were looked at. "
            "That shows the most that is allocated. What is reserved depends on the order: it may "
            "be more in the script's own, where there is room for it"
        )
        return sorted(looked_at, key=lambda i: -sizes[i])


class _Reordered:
    """A sampler of batches. The first ones have as many indices as they had, of the longest."""

    def __init__(self, sampler: Any, ranked: Sequence[int]) -> None:
        self._sampler = sampler
        self._ranked = ranked

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self._sampler):
            first = list(self._ranked[: len(batch)]) if number < _BATCHES else []
            yield first + list(batch)[len(first) :]

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _spread(count: int, most: int) -> list[int]:
    step = max(1.0, count / most)
    return [int(i * step) for i in range(min(count, most))]


def _size(example: Any) -> int:
    """How much there is of it: elements of tensors and arrays, letters, numbers in lists."""
    if isinstance(example, torch.Tensor):
        return example.numel()
    if isinstance(example, (str, bytes)):
        return len(example)
    if isinstance(example, Mapping):
        return sum(map(_size, example.values()))
    if isinstance(example, (list, tuple)):
        is_flat = not example or isinstance(example[0], (int, float))
        return len(example) if is_flat else sum(map(_size, example))
    size = getattr(example, "size", 1)  # numpy's is a number, a picture's its width and height
    if isinstance(size, tuple) and all(isinstance(side, int) for side in size):
        return size[0] * size[1] if len(size) == 2 else 1
    return size if isinstance(size, int) else 1


@contextlib.contextmanager
def _same_chance() -> Iterator[None]:
    """Examples that are made by chance leave the generators as they were."""
    state, torchs = random.getstate(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(state)
        torch.set_rng_state(torchs)
