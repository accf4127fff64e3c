"""Recurrent networks: packed sequences go to cuDNN as padded ones do, and cells have gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import peakline

KINDS = [nn.LSTM, nn.GRU, nn.RNN]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with peakline.virtual_gpu("h200"):
        yield


def kept(network: Any, inputs: Any) -> int:
    """Bytes that forward leaves for backward, results included."""
    before = torch.cuda.memory_allocated()
    results = network(inputs)
    after = torch.cuda.memory_allocated()
    del results
    return after - before


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_batch_has_results_and_gradients(kind: Any) -> None:
    network = kind(8, 16, num_layers=2, bidirectional=True, dropout=0.1, device="cuda")
    x = torch.randn(5, 3, 8, device="cuda", requires_grad=True)
    packed = pack_padded_sequence(x, torch.tensor([5, 4, 2]))
    results, _ = pad_packed_sequence(network(packed)[0])
    assert results.shape == (5, 3, 32)
    results.sum().backward()
    assert x.grad is not None
    assert all(weight.grad is not None for weight in network.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_cudnn_keeps_less_of_short_sequences_than_of_long_ones(kind: Any) -> None:
    network = kind(64, 512, device="cuda")
    x = torch.randn(40, 8, 64, device="cuda")
    whole = kept(network, pack_padded_sequence(x, torch.full((8,), 40)))
    short = kept(network, pack_padded_sequence(x, torch.tensor([40] + [20] * 7)))
    rows = 7 * 20 * 512 * 4  # results of steps that are not there, and what is kept of each of them
    assert whole - short >= 2 * rows


def test_a_projection_gives_states_of_its_size() -> None:
    network = nn.LSTM(8, 16, proj_size=4, device="cuda")
    packed = pack_padded_sequence(torch.randn(5, 3, 8, device="cuda"), [2, 5, 4], False, False)
    results, (hidden, cell) = network(packed)
    assert results.data.shape == (11, 4)
    assert (hidden.shape, cell.shape) == ((1, 3, 4), (1, 3, 16))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_have_results_and_gradients(kind: Any, bias: bool) -> None:
    cell = kind(8, 16, bias=bias, device="cuda")
    x = torch.randn(3, 8, device="cuda", requires_grad=True)
    state = cell(x)
    hidden = state[0] if isinstance(state, tuple) else state
    assert hidden.shape == (3, 16)
    hidden.sum().backward()
    assert x.grad is not None
    assert cell.weight_hh.grad.shape == cell.weight_hh.shape
