"""Ops of other libraries whose results have as many rows as values say: everything is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import peakline

OPS = torch.ops.peakline_tests


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[Any]:
    with torch.library._scoped_library("peakline_tests", "FRAGMENT") as library:
        library.define("keep(Tensor boxes, float threshold) -> Tensor")
        library.define("keep_some(Tensor boxes, int most) -> Tensor")

        def keep(boxes: torch.Tensor, threshold: float) -> torch.Tensor:
            return (boxes[:, 0] > threshold).nonzero().view(-1)

        def shape_of_keep(boxes: torch.Tensor, threshold: float) -> torch.Tensor:
            size = torch.library.get_ctx().new_dynamic_size()
            return boxes.new_empty(size, dtype=torch.long)

        def shape_of_some(boxes: torch.Tensor, most: int) -> torch.Tensor:
            return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(max=most))

        library.impl("keep", keep, "CPU")
        torch.library.register_fake("peakline_tests::keep", shape_of_keep, lib=library)
        torch.library.register_fake("peakline_tests::keep_some", shape_of_some, lib=library)
        yield library


def test_as_many_are_kept_as_there_are() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        assert OPS.keep(torch.rand(50, 4, device="cuda"), 0.5).shape == (50,)
    assert any("sizes depend on values" in note for note in gpu.notes())


def test_no_more_are_kept_than_the_op_says() -> None:
    with peakline.virtual_gpu("h200"):
        assert OPS.keep_some(torch.rand(50, 4, device="cuda"), 7).shape == (7,)


def test_known_values_are_counted_and_do_not_stand_for_others() -> None:
    known = torch.tensor([[0.0], [1.0], [1.0]])
    with peakline.virtual_gpu("h200"):
        assert OPS.keep(known.cuda(), 0.5).tolist() == [1, 2]
        assert OPS.keep(torch.rand(3, 1, device="cuda"), 0.5).shape == (3,)
        assert OPS.keep(known.cuda(), -1.0).tolist() == [0, 1, 2]


def test_outside_a_virtual_gpu_torch_refuses_as_ever() -> None:
    with pytest.raises(RuntimeError, match="data-dependent"):
        OPS.keep(torch.rand(50, 4, device="meta"), 0.5)
