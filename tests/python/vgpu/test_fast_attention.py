"""nn.TransformerEncoder's fast path in evaluation, padded and nested, and nested tensors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import peakline

WIDTH, HEADS, LENGTH, BATCH = 256, 4, 128, 16


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with peakline.virtual_gpu("h200"):
        yield


def encoder(**options: bool) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2).cuda().eval()


def peak_of(model: nn.Module, mask: torch.Tensor | None) -> int:
    x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")
    with torch.no_grad():
        model(x, src_key_padding_mask=mask)  # libraries' workspaces stay
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        assert model(x, src_key_padding_mask=mask).shape == x.shape
    return torch.cuda.max_memory_allocated() - before


def padding(length: int) -> torch.Tensor:
    """True where a sequence of this length is padded; copied from the host, so it is known."""
    mask = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    mask[:, length:] = True
    return mask.cuda()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_is_left_out_where_the_mask_is_known() -> None:
    model = encoder()
    whole, half = peak_of(model, padding(LENGTH)), peak_of(model, padding(LENGTH // 2))
    assert half < 0.7 * whole


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_mask_that_nobody_knows_pads_nothing() -> None:
    model = encoder()
    unknown = torch.rand(BATCH, LENGTH, device="cuda") > 0.5
    assert peak_of(model, unknown) == peak_of(model, padding(LENGTH))


def test_a_layer_holds_its_feed_forward_and_no_scores() -> None:
    rows = BATCH * LENGTH * WIDTH * 4
    scores = BATCH * HEADS * LENGTH * LENGTH * 4
    # The feed-forward is four times as wide as its input and its result.
    assert 6 * rows <= peak_of(encoder(), None) < 6 * rows + scores


def test_weights_are_given_where_they_are_asked_for() -> None:
    attention = nn.MultiheadAttention(64, 4, batch_first=True).cuda().eval()
    x = torch.randn(3, 7, 64, device="cuda")
    with torch.no_grad():
        result, weights = attention(x, x, x)
        per_head = attention(x, x, x, average_attn_weights=False)[1]
        without = attention(x, x, x, need_weights=False)
    assert (result.shape, weights.shape) == ((3, 7, 64), (3, 7, 7))
    assert per_head.shape == (3, 4, 7, 7)
    assert without[1] is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_padded_to_the_longest() -> None:
    parts = [torch.randn(3, 4), torch.randn(2, 4)]
    nested = torch.nested.nested_tensor(parts, device="cuda")
    assert nested.to_padded_tensor(0.0).shape == (2, 3, 4)
    assert torch.nested.to_padded_tensor(nested * 2, 0.0, (2, 5, 4)).shape == (2, 5, 4)
