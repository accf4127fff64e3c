"""xformers' stand-in: bytes by its sources, forward and backward."""

import pytest
import torch
from stand_in_support import blocks, grown, half

import peakline

ROWS = 2 * 8 * 512  # batch, heads, rows
RESULT = ROWS * 64 * 2  # bytes of attention over heads of 64 in half precision
NUMBERS = ROWS * 4  # one float for each row


def backward_peak(out: torch.Tensor, *inputs: torch.Tensor) -> int:
    grad = torch.empty_like(out)
    return grown(lambda: torch.autograd.grad(out, inputs, grad))[1]


def test_attention_keeps_its_result_and_a_number_a_row() -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import (  # type: ignore[import-not-found]
            LowerTriangularMask,
            memory_efficient_attention,
        )

        q, k, v = half(2, 512, 8, 64), half(2, 512, 8, 64), half(2, 512, 8, 64)
        kept, _, out = grown(lambda: memory_efficient_attention(q, k, v, LowerTriangularMask()))
        assert kept == RESULT + NUMBERS
        sums = NUMBERS + ROWS * 64 * 4  # of each row, and of the queries' gradient
        assert backward_peak(out, q, k, v) == 3 * RESULT + sums


def test_dropout_keeps_the_random_state_too() -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import memory_efficient_attention

        q = half(2, 512, 8, 64)
        kept, _, out = grown(lambda: memory_efficient_attention(q, q, q, p=0.1))
        assert kept == RESULT + NUMBERS + blocks(16)
        assert out.requires_grad


def test_without_gradients_only_the_result_stays() -> None:
    with peakline.virtual_gpu("h200"), torch.no_grad():
        from xformers.ops import memory_efficient_attention

        q = half(2, 512, 8, 64)
        assert grown(lambda: memory_efficient_attention(q, q, q))[0] == RESULT


def test_gradients_of_one_tensor_come_in_one_and_unbind_copies_nothing() -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import memory_efficient_attention, unbind

        def peak(split: object) -> int:
            packed = half(2, 512, 3, 8, 64)
            out = memory_efficient_attention(*split(packed, 2))  # type: ignore[operator]
            return backward_peak(out, packed)

        # FlashAttention's stride of heads says whether they came from one tensor.
        interleaved = half(2, 512, 8, 3 * 64)
        q, k, v = (interleaved.view(2, 512, 8, 3, 64)[..., i, :] for i in range(3))
        out = memory_efficient_attention(q, k, v)
        grad = torch.empty_like(out)
        _, high, grads = grown(lambda: torch.autograd.grad(out, (q, k, v), grad))
        assert high == 3 * RESULT + NUMBERS + ROWS * 64 * 4
        assert len({grad.untyped_storage()._cdata for grad in grads}) == 1
        assert peak(unbind) == peak(torch.unbind)  # their heads lie side by side: three gradients

        whole = half(2, 512, 3, 8, 64)
        parts = unbind(whole, 2)
        together = torch.empty(2, 512, 3, 8, 64, device="cuda", dtype=torch.bfloat16)
        kept, _, (grad,) = grown(lambda: torch.autograd.grad(parts, (whole,), together.unbind(2)))
        assert kept == 0
        assert grad.shape == whole.shape


def test_packed_sequences_have_numbers_for_all_rows_and_room_for_each_sequence() -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import fmha

        lists = [half(2, 128, 8, 64), half(1, 256, 8, 64)]
        mask, rows = fmha.BlockDiagonalMask.from_tensor_list(lists)
        kept, _, out = grown(lambda: fmha.memory_efficient_attention(rows, rows, rows, mask))
        assert kept == 512 * 8 * 64 * 2 + 512 * 8 * 4
        assert [part.shape for part in mask.split(out)] == [part.shape for part in lists]
        room = 512 + 3 * 128
        sums = room * 8 * 4 + room * 8 * 64 * 4
        gradients = 3 * 512 * 8 * 64 * 2
        assert backward_peak(out, rows) == gradients + sums


@pytest.mark.parametrize("masked", [False, True])
def test_single_precision_and_tensors_as_masks_take_torchs_own_kernel(masked: bool) -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import memory_efficient_attention

        shape = (1, 100, 8, 64)
        dtype = torch.bfloat16 if masked else torch.float32
        q = torch.empty(shape, device="cuda", dtype=dtype, requires_grad=True)
        bias = torch.empty(1, 8, 100, 104, device="cuda", dtype=dtype)[..., :100]
        mask = bias if masked else None
        kept, _, out = grown(lambda: memory_efficient_attention(q, q, q, mask))
        rows = 128  # in steps of 32
        assert kept == blocks(q.numel() * q.element_size(), 8 * rows * 4)
        out.sum().backward()
        assert q.grad is not None


def test_groups_of_heads_have_a_forward_alone() -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import memory_efficient_attention

        q = torch.empty(2, 32, 2, 4, 64, device="cuda", dtype=torch.bfloat16)
        k = torch.empty(2, 32, 2, 1, 64, device="cuda", dtype=torch.bfloat16).expand(q.shape)
        assert memory_efficient_attention(q, k, k).shape == q.shape
        with pytest.raises(NotImplementedError, match="groups of heads"):
            memory_efficient_attention(q.requires_grad_(), k, k)
