"""CTC loss on a virtual GPU: torch's own kernels, whatever the targets look like."""

import pytest
import torch
import torch.nn.functional as F

import peakline

STEPS, BATCH, CLASSES, LENGTH = 50, 4, 30, 10


def log_probabilities() -> torch.Tensor:
    scores = torch.randn(STEPS, BATCH, CLASSES, device="cuda")
    return scores.log_softmax(-1).detach().requires_grad_()


@pytest.mark.parametrize("lengths_on", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", [(BATCH, LENGTH), (BATCH * LENGTH,)])
def test_padded_and_joined_targets_give_gradients(lengths_on: str, shape: tuple[int, ...]) -> None:
    with peakline.virtual_gpu("h200"):
        inputs = log_probabilities()
        targets = torch.randint(1, CLASSES, shape, device="cuda")
        steps = torch.full((BATCH,), STEPS, device=lengths_on)
        lengths = torch.full((BATCH,), LENGTH, device=lengths_on)
        loss = F.ctc_loss(inputs, targets, steps, lengths)
        loss.backward()
        assert loss.shape == ()
        assert inputs.grad is not None
        assert inputs.grad.shape == inputs.shape


def test_what_forward_keeps_is_counted() -> None:
    with peakline.virtual_gpu("h200"):
        inputs = log_probabilities()
        targets = torch.randint(1, CLASSES, (BATCH, LENGTH), device="cuda")
        before = torch.cuda.memory_allocated()
        loss = F.ctc_loss(inputs, targets, [STEPS] * BATCH, [LENGTH] * BATCH, reduction="sum")
        kept = BATCH * STEPS * (2 * LENGTH + 1) * 4  # a sum for each step and place in the target
        assert torch.cuda.memory_allocated() - before >= kept
        del loss
        assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("shape", [(BATCH, LENGTH), (BATCH * LENGTH,)])
def test_lengths_that_nobody_knows_are_the_longest(shape: tuple[int, ...]) -> None:
    def kept(lengths: torch.Tensor) -> int:
        inputs = log_probabilities()
        targets = torch.randint(1, CLASSES, shape, device="cuda")
        steps = torch.full((BATCH,), STEPS, device="cuda")
        before = torch.cuda.memory_allocated()
        loss = F.ctc_loss(inputs, targets, steps, lengths, reduction="sum")
        after = torch.cuda.memory_allocated()
        del loss
        return after - before

    with peakline.virtual_gpu("h200"):
        unknown = torch.randint(1, LENGTH, (BATCH,), device="cuda")
        longest = torch.full((BATCH,), LENGTH, device="cuda")
        assert kept(unknown) == kept(longest)
