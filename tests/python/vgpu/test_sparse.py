"""Sparse tensors: torch's shapes, CUDA's memory, and the most where nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import peakline

MIB = 2**20


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with peakline.virtual_gpu("h200"):
        yield


def unknown(count: int, rows: int, width: int) -> torch.Tensor:
    """A hybrid tensor whose places nobody knows."""
    places = torch.randint(0, rows, (1, count), device="cuda")
    values = torch.randn(count, width, device="cuda")
    return torch.sparse_coo_tensor(places, values, (rows, width))


def matrix() -> torch.Tensor:
    """Three elements, two of them at the same place."""
    return torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 4))


def held(make: Callable[[], object]) -> tuple[int, int]:
    """Bytes more after than before, and at the highest in between."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = make()
    after = torch.cuda.memory_allocated()
    del kept
    return after - before, torch.cuda.max_memory_allocated() - before


def test_a_sparse_tensor_goes_to_the_gpu_and_back() -> None:
    moved = matrix().cuda()
    assert moved.is_cuda
    assert moved.is_sparse
    assert moved._nnz() == 3
    assert torch.equal(moved.cpu().to_dense(), matrix().to_dense())


def test_known_places_are_added_up_exactly() -> None:
    assert matrix().cuda().coalesce()._nnz() == 2


def test_unknown_places_are_as_different_as_places_drawn_evenly() -> None:
    assert unknown(1000, 50, 4).coalesce()._nnz() == 50
    assert unknown(30, 1, 4).coalesce()._nnz() == 1
    drawn = torch.randint(0, 500_000, (1, 81_920)).unique().numel()
    assert unknown(81_920, 500_000, 4).coalesce()._nnz() == pytest.approx(drawn, rel=0.01)


def test_coalesce_sorts_in_scratch_memory_beside_the_result() -> None:
    n = 50_000_000
    sparse = unknown(n, 200 * n, 1)
    more, peak = held(sparse.coalesce)
    assert more == pytest.approx(n * (8 + 4), rel=0.01)
    # places, their order and first ones; then the sort's copies of places and order
    assert peak == pytest.approx(n * 8 * 5, rel=0.01)


def test_elements_of_a_dense_tensor_that_nobody_knows_all_count() -> None:
    assert torch.randn(3, 4, device="cuda").to_sparse()._nnz() == 12
    assert torch.randn(3, 4, device="cuda").to_sparse_csr()._nnz() == 12
    assert torch.eye(3, device="cuda").to_sparse()._nnz() == 3


def test_sums_of_sparse_tensors_hold_the_elements_of_both() -> None:
    assert (unknown(10, 50, 4) + unknown(20, 50, 4))._nnz() == 30
    assert (torch.zeros(50, 4, device="cuda") + unknown(10, 50, 4)).layout == torch.strided


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_a_product_with_a_dense_matrix_is_dense_and_has_gradients(
    convert: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    sparse = convert(torch.randn(6, 4, device="cuda")).detach().requires_grad_()
    dense = torch.randn(4, 5, device="cuda", requires_grad=True)
    product = torch.sparse.mm(sparse, dense)
    assert product.shape == (6, 5)
    product.sum().backward()
    assert sparse.grad is not None
    assert sparse.grad.layout == sparse.layout
    assert dense.grad is not None
    assert dense.grad.shape == (4, 5)


def test_csr_products_and_sums_have_at_most_what_both_allow() -> None:
    one = torch.randn(3, 4, device="cuda").to_sparse_csr()
    assert (one @ torch.randn(4, device="cuda")).shape == (3,)
    assert (one + one)._nnz() == 12
    assert (one @ one.to_dense().t().to_sparse_csr())._nnz() == 9


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo])
def test_layouts_become_each_other_and_dense(layout: torch.layout) -> None:
    sparse = torch.randn(3, 4, device="cuda").to_sparse(layout=layout)
    assert sparse.layout == layout
    assert sparse.to_dense().shape == (3, 4)
    assert sparse.to_sparse_csr().layout == torch.sparse_csr


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad]
)
def test_an_embedding_with_sparse_gradients_trains(
    optimizer: Callable[..., torch.optim.Optimizer],
) -> None:
    table = nn.Embedding(100_000, 64, sparse=True, device="cuda")
    steps = optimizer(table.parameters(), lr=0.1)
    table(torch.randint(0, 100_000, (512,), device="cuda")).sum().backward()
    gradient = table.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert gradient._nnz() == 512
    more, _ = held(steps.step)
    # Adagrad has made its state before, SGD has none.
    states = 2 if optimizer is torch.optim.SparseAdam else 0
    assert more == pytest.approx(states * table.weight.nbytes, abs=MIB)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_bag_of_embeddings_has_one_row_of_gradient_for_each_index(mode: str) -> None:
    bag = nn.EmbeddingBag(1000, 16, sparse=True, mode=mode, device="cuda")
    offsets = torch.arange(0, 64, 4, device="cuda")
    bag(torch.randint(0, 1000, (64,), device="cuda"), offsets).sum().backward()
    assert bag.weight.grad is not None
    assert bag.weight.grad._nnz() == 64


def test_gradients_of_two_backwards_are_kept_one_after_the_other() -> None:
    table = nn.Embedding(1000, 16, sparse=True, device="cuda")
    for _ in range(2):
        table(torch.randint(0, 1000, (64,), device="cuda")).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad._nnz() == 128
    table.zero_grad(set_to_none=False)
    assert table.weight.grad._nnz() == 0


def test_what_no_gpu_computes_is_refused_in_one_sentence() -> None:
    with pytest.raises(NotImplementedError, match="no kernel for sparse"):
        torch.linalg.vector_norm(unknown(10, 50, 4).mul(torch.ones(50, 4, device="cuda")), 3)
