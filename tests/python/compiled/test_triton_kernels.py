"""Triton kernels of the program's own: checked for their arguments, and not launched."""

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import peakline


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (256, 1024)],
    key=["n"],
    restore_value=["out"],
)
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)](
        x, y, out, out.numel(), BLOCK=1024
    )
    return out


def test_a_kernel_allocates_what_the_program_allocates_for_it() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(2**20, device="cuda")
        before = torch.cuda.memory_allocated()
        out = add(x, x)
        assert torch.cuda.memory_allocated() - before == out.numel() * 4
        compiled = torch.compile(lambda x: add(x, x) * 2)
        assert compiled(x).shape == x.shape


@pytest.mark.parametrize(
    ("arguments", "named", "error"),
    [
        (1, {"BLOCK": 1024}, TypeError),  # n is missing
        (2, {}, TypeError),  # BLOCK is missing
        (2, {"BLOCK": 1024, "blocks": 3}, KeyError),  # there is no such argument
    ],
)
def test_wrong_arguments_are_refused_as_triton_refuses_them(
    arguments: int, named: dict[str, Any], error: type[Exception]
) -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(64, device="cuda")
        rest = (64,) if arguments == 2 else ()
        with pytest.raises(error):
            add_kernel[(1,)](x, x, x, *rest, **named)


@pytest.mark.parametrize("real_host", [True, False])
def test_memory_of_the_host_is_refused_unless_it_is_pinned(real_host: bool) -> None:
    with peakline.virtual_gpu("h200", real_host=real_host):
        x = torch.empty(2**23, device="cuda")
        with pytest.raises(ValueError, match=r"\(at 1\).*cpu tensor"):
            add_kernel[(1,)](x, torch.empty(2**23), x, 64, BLOCK=64)
        add_kernel[(1,)](x, torch.empty(64).pin_memory(), x, 64, BLOCK=64)


def test_what_triton_does_for_a_build_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is Python, and more of it at every launch would count as the program's own time."""
    packed = []
    pack = type(add_kernel)._pack_args

    def counted(self: Any, *args: Any) -> Any:
        packed.append(self)
        return pack(self, *args)

    monkeypatch.setattr(type(add_kernel), "_pack_args", counted)
    with peakline.virtual_gpu("h200"):
        x = torch.empty(1024, device="cuda")
        for block in (64, 64, 64, 128):
            add_kernel[(1,)](x, x, x, 1024, BLOCK=block)
    assert len(packed) == 2


def test_a_grid_that_no_gpu_takes_is_refused() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(64, device="cuda")
        with pytest.raises(RuntimeError, match="grid"):
            add_kernel[(1, 2**20)](x, x, x, 64, BLOCK=64)


def test_a_tuned_kernel_takes_its_first_configuration_and_its_copies_count() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        x = torch.empty(2**20, device="cuda")
        out = torch.empty_like(x)
        before = torch.cuda.memory_allocated()
        tuned_kernel[(1024,)](x, out, x.numel())
        assert tuned_kernel.best_config.kwargs == {"BLOCK": 256}
        flush = 256 * 2**20
        assert torch.cuda.max_memory_allocated() - before >= flush + out.numel() * 4
        assert torch.cuda.memory_allocated() == before
    assert any("a rule answered" in note for note in gpu.notes())


@triton.jit
def described_kernel(x, out, rows, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    target.store(at, source.load(at))


def copied(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    rows, columns = x.shape
    grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
    described_kernel[grid](x, out, rows, columns, BLOCK=32)
    return out


def test_descriptors_that_a_kernel_makes_take_memory_for_each_program() -> None:
    asked = []

    def allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
        asked.append(size)
        return torch.empty(size, dtype=torch.int8, device="cuda")

    with peakline.virtual_gpu("h200"):
        x = torch.empty(1024, 2048, device="cuda")
        with pytest.raises(RuntimeError, match="no allocator was set"):
            copied(x)
        triton.set_allocator(allocate)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out = copied(x)
        scratch = 2 * 128 * 32 * 64  # of two descriptors, 128 bytes each
        assert asked == [scratch]
        assert torch.cuda.max_memory_allocated() - before == out.numel() * 4 + scratch
        assert torch.cuda.memory_allocated() - before == out.numel() * 4
        add(x, x)
        assert asked == [scratch]  # a kernel without descriptors asks for nothing


def test_descriptors_take_memory_inside_compiled_code_as_well() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(1024, 2048, device="cuda")
        compiled = torch.compile(copied)
        compiled(x)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        compiled(x)
        scratch = 2 * 128 * 32 * 64
        assert torch.cuda.max_memory_allocated() - before == x.numel() * 4 + scratch


def test_gpus_without_descriptors_take_no_memory_for_them() -> None:
    with peakline.virtual_gpu("a100-80"):
        copied(torch.empty(1024, 2048, device="cuda"))


def test_a_kernel_forgets_the_virtual_gpu_with_it() -> None:
    with peakline.virtual_gpu("h200"):
        add(*(torch.empty(64, device="cuda") for _ in range(2)))
        assert add_kernel.device_caches
    assert not add_kernel.device_caches


def test_cuda_sources_of_the_program_are_not_launched() -> None:
    source = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1; }'
    with peakline.virtual_gpu("h200"):
        kernel = torch.cuda._compile_kernel(source, "fill")
        kernel((1, 1, 1), (64, 1, 1), (torch.empty(64, device="cuda"),))
        with pytest.raises(RuntimeError, match="2048 threads"):
            kernel((1, 1, 1), (2048, 1, 1))
        with pytest.raises(RuntimeError, match="no kernel other"):
            torch.cuda._compile_kernel(source, "other")
