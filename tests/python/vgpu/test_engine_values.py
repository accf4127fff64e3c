"""Values that a program can know without computing anything on the GPU."""

from __future__ import annotations

import pytest
import torch

import peakline


def test_values_made_from_numbers_are_read_back() -> None:
    with peakline.virtual_gpu("h200"):
        ramp = torch.arange(10, device="cuda")
        assert ramp.tolist() == list(range(10))
        assert (ramp * 2 + 1)[3].item() == 7
        assert ramp.sum().item() == 45
        assert torch.linspace(0, 1, 5, device="cuda").tolist() == [0, 0.25, 0.5, 0.75, 1]
        assert bool((torch.ones(3, device="cuda") == 1).all())
        assert torch.tensor([[1, 2], [3, 4]], device="cuda").t().tolist() == [[1, 3], [2, 4]]
        assert torch.full((2,), 7.0, device="cuda").cpu().tolist() == [7, 7]
        assert torch.tril_indices(2, 2, device="cuda").tolist() == [[0, 1, 1], [0, 0, 1]]


def test_changes_in_place_and_through_views_are_seen() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.zeros(4, device="cuda")
        x[1:3] += 2
        x[0] = 5
        assert x.tolist() == [5, 2, 2, 0]
        x.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        assert x.flip(0).tolist() == [4, 3, 2, 1]
        out = torch.empty(0, device="cuda")
        torch.add(x, x, out=out)
        assert out.tolist() == [2, 4, 6, 8]


def test_masks_and_counts_follow_known_values() -> None:
    with peakline.virtual_gpu("h200"):
        ramp = torch.arange(10, device="cuda")
        weights = torch.randn(10, 3, device="cuda")
        assert (ramp > 6).nonzero().tolist() == [[7], [8], [9]]
        assert weights[ramp > 6].shape == (3, 3)
        assert weights.masked_select((ramp > 7)[:, None]).shape == (6,)
        assert torch.repeat_interleave(torch.tensor([1, 3], device="cuda")).tolist() == [0, 1, 1, 1]
        assert torch.unique(torch.tensor([3, 1, 3], device="cuda")).tolist() == [1, 3]
        assert torch.bincount(torch.tensor([0, 2], device="cuda")).tolist() == [1, 0, 1]


def test_what_depends_on_random_numbers_is_answered_by_policy_and_counted() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        loss = torch.randn(100, device="cuda").sum()
        assert loss.item() == pytest.approx(1)
        assert bool(loss.isnan()) is False
        assert loss.cpu().item() == pytest.approx(1)
        assert torch.randint(0, 9, (4,), device="cuda").tolist() == [1, 1, 1, 1]
        assert gpu.counters()["unknown_values"] == 3
    assert gpu.unknown_values() == {"item": 1, "copy to the host": 2}


def test_the_policy_can_be_chosen() -> None:
    values = {"float": 0.5, "int": 3, "bool": True, "nonzero": 0.25}
    with peakline.virtual_gpu("h200", values=values):
        x = torch.randn(8, 8, device="cuda")
        assert x.sum().item() == 0.5
        assert bool((x > 0).any())
        assert x.argmax().item() == 3
        assert x[x > 0].shape == (16,)


def test_an_unknown_write_makes_values_unknown() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        x = torch.zeros(4, device="cuda")
        x += torch.randn(4, device="cuda")
        assert x.tolist() == pytest.approx([1, 1, 1, 1])
        x.zero_()
        assert x.tolist() == [0, 0, 0, 0]
        assert gpu.counters()["unknown_values"] == 1


def test_large_tensors_keep_no_values() -> None:
    gpu = peakline.virtual_gpu("h200", value_bytes=1024)
    with gpu:
        assert torch.arange(8, device="cuda")[1].item() == 1
        assert torch.arange(1024, device="cuda")[5].item() == 1
        assert gpu.counters()["unknown_values"] == 1


def test_the_gradients_of_a_virtual_gpu_count_as_finite() -> None:
    with peakline.virtual_gpu("h200"):
        weight = torch.nn.Parameter(torch.randn(4, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale((weight * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert "momentum_buffer" in optimizer.state[weight]
        assert scaler.get_scale() == 65536.0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
def test_copies_to_the_host_and_back_keep_values(dtype: torch.dtype) -> None:
    host = torch.tensor([0, 1, 1, 0], dtype=dtype)
    with peakline.virtual_gpu("h200"):
        assert torch.equal(host.cuda().cpu(), host)
        assert torch.equal(host.cuda().to(torch.float64).cpu(), host.to(torch.float64))


def test_a_conjugate_by_a_bit_is_one_in_its_values() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.tensor([1 + 2j, 3 - 1j]).cuda()
        assert x.conj().cpu().tolist() == [1 - 2j, 3 + 1j]
        assert (x.conj() * 1).cpu().tolist() == [1 - 2j, 3 + 1j]
        # Bytes without the bit would say (1+2j)² + (3-1j)².
        assert torch.mm(x.conj()[None], x[:, None]).item() == 15


@pytest.mark.parametrize(
    ("values", "close"), [({}, True), ({"bool": 0}, False), ({"bool": 1}, True)]
)
def test_what_is_alike_is_a_bool_that_can_be_chosen(values: dict[str, float], close: bool) -> None:
    with peakline.virtual_gpu("h200", values=values):
        assert torch.rand(4, device="cuda").allclose(torch.rand(4, device="cuda")) is close
