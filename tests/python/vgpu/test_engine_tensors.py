"""Virtual tensors: devices, views, in-place changes, storages."""

from __future__ import annotations

import pytest
import torch

import peakline
from peakline import _C


def test_a_tensor_on_cuda_is_virtual_and_says_cuda() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(3, 4, device="cuda")
        assert _C.vgpu.is_virtual(x)
        assert x.is_cuda
        assert x.device == torch.device("cuda:0")
        assert x.type() == "torch.cuda.FloatTensor"
        assert not _C.vgpu.is_virtual(torch.empty(3))


def test_sizes_and_strides_are_those_of_the_same_program_on_the_host() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.empty(4, 6, 8, device=device)
        image = torch.empty(2, 3, 8, 8, device=device).to(memory_format=torch.channels_last)
        return [
            x + 1,
            x.transpose(0, 2) * x.transpose(0, 2),
            x[1:3, ::2].sum(-1),
            x.permute(2, 0, 1).contiguous(),
            torch.cat([x, x], dim=1),
            x.expand(2, 4, 6, 8).reshape(-1),
            torch.stack([x, x]).unbind()[1],
            x.half().float().max(dim=1).indices,
            torch.nn.functional.conv2d(image, torch.empty(5, 3, 3, 3, device=device)),
            torch.nn.functional.interpolate(image, scale_factor=2),
            x.topk(3).values,
            torch.einsum("abc,abd->acd", x, x),
            x.view(-1).unfold(0, 4, 2),
            torch.where(x > 0, x, 0.0),
        ]

    expected = program("cpu")
    with peakline.virtual_gpu("h200"):
        found = program("cuda")
        for real, virtual in zip(expected, found, strict=True):
            assert virtual.is_cuda
            assert virtual.shape == real.shape
            assert virtual.dtype == real.dtype
            if real.dim() != 4:  # cuDNN's layouts are its own
                assert virtual.stride() == real.stride()


def test_views_share_memory_and_in_place_changes_take_none() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.randn(1024, device="cuda")
        before = torch.cuda.memory_allocated()
        view = x.view(32, 32).t()[1:]
        view.mul_(2).add_(1)
        x.clamp_(0, 1)
        torch._foreach_add_([x, view], 1.0)
        assert torch.cuda.memory_allocated() == before
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert x._version == 5


def test_a_storage_grows_and_shrinks_in_the_allocator() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(1024, dtype=torch.uint8, device="cuda")
        storage = x.untyped_storage()
        storage.resize_(0)
        assert torch.cuda.memory_allocated() == 0
        storage.resize_(1 << 20)
        assert torch.cuda.memory_allocated() == 1 << 20
        x.resize_(2 << 20)
        assert torch.cuda.memory_allocated() == 2 << 20


def test_out_arguments_are_resized_as_on_a_gpu() -> None:
    with peakline.virtual_gpu("h200"):
        a = torch.empty(64, 64, device="cuda")
        out = torch.empty(0, device="cuda")
        torch.mm(a, a, out=out)
        assert out.shape == (64, 64)
        assert out.untyped_storage().nbytes() == 64 * 64 * 4


def test_a_module_moves_to_the_gpu_and_keeps_its_parameters() -> None:
    model = torch.nn.Linear(8, 8)
    weight = model.weight
    with peakline.virtual_gpu("h200"):
        model.cuda()
        assert model.weight is weight
        assert weight.is_cuda
        model.cpu()
        assert model.weight is weight
        assert not weight.is_cuda


def test_set_makes_two_tensors_share_one_storage() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(256, device="cuda")
        y = torch.empty(0, device="cuda").set_(x.untyped_storage(), 16, (4, 4), (4, 1))
        assert y.shape == (4, 4)
        assert y.storage_offset() == 16
        assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
        assert torch.cuda.memory_allocated() == 1024


def test_tensors_of_two_devices_do_not_mix() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        a = torch.empty(4, 4, device="cuda:0")
        b = torch.empty(4, 4, device="cuda:1")
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            a + b
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.mm(a, torch.empty(4, 4))
        assert (a + torch.tensor(1.0)).device == a.device
        assert (a + b.to(a.device)).device == a.device


def test_shapes_that_do_not_fit_raise_what_torch_raises() -> None:
    with peakline.virtual_gpu("h200"):
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            torch.mm(torch.empty(2, 3, device="cuda"), torch.empty(2, 3, device="cuda"))
        with pytest.raises(RuntimeError, match="must match the size"):
            torch.empty(2, 3, device="cuda") + torch.empty(2, 4, device="cuda")


def test_a_device_that_is_not_there_is_an_error() -> None:
    with (
        peakline.virtual_gpu("h200", devices=2),
        pytest.raises(RuntimeError, match="invalid device ordinal"),
    ):
        torch.empty(1, device="cuda:2")


def test_an_op_that_torch_sizes_only_without_out_is_sized_so() -> None:
    """Inductor's code gives torch._scaled_mm its result."""
    with peakline.virtual_gpu("h200"):
        one = torch.ones((), device="cuda")
        rows = torch.empty(64, 32, device="cuda", dtype=torch.float8_e4m3fn)
        columns = torch.empty(16, 32, device="cuda", dtype=torch.float8_e4m3fn).t()
        out = torch.empty(64, 16, device="cuda", dtype=torch.bfloat16)
        place = out.data_ptr()
        given = torch.ops.aten._scaled_mm.out(
            rows, columns, one, one, out_dtype=torch.bfloat16, out=out
        )
        assert given is out
        assert (out.shape, out.data_ptr()) == ((64, 16), place)
        small = torch.empty(0, device="cuda", dtype=torch.bfloat16)
        torch.ops.aten._scaled_mm.out(rows, columns, one, one, out_dtype=torch.bfloat16, out=small)
        assert small.shape == (64, 16)
