"""Random samples and their gradients have torch's shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributions as D

import peakline


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with peakline.virtual_gpu("h200"):
        yield


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes, device="cuda", requires_grad=True)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: D.Dirichlet(ones(3, 4)), (3, 4)),
        (lambda: D.Beta(ones(3), ones(3)), (3,)),
        (lambda: D.Gamma(ones(3), ones(3)), (3,)),
        (lambda: D.StudentT(ones(3)), (3,)),
        (lambda: D.Wishart(5 * ones(), torch.eye(3, device="cuda")), (3, 3)),
    ],
)
def test_samples_with_gradients(make: Callable[[], D.Distribution], shape: tuple[int]) -> None:
    sample = make().rsample()
    assert sample.shape == shape
    sample.sum().backward()


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: D.Binomial(10, torch.rand(3, device="cuda")), (3,)),
        (lambda: D.Multinomial(10, torch.rand(3, device="cuda")), (3,)),
        (lambda: D.Poisson(torch.rand(3, device="cuda")), (3,)),
        (lambda: D.LKJCholesky(3, torch.ones(2, device="cuda")), (2, 3, 3)),
        (lambda: D.VonMises(ones(3), ones(3)), (3,)),
    ],
)
def test_samples_without_gradients(make: Callable[[], D.Distribution], shape: tuple[int]) -> None:
    assert make().sample().shape == shape


def test_samples_after_a_step_end_as_those_before() -> None:
    """Made-up numbers fall with every step; one of an interval stays away from its ends."""
    weight = torch.ones(3, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert D.VonMises(ones(3), ones(3)).sample().shape == (3,)
