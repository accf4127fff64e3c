"""Versions, settings and tools around CUDA; what a virtual GPU refuses."""

from __future__ import annotations

import pytest
import torch

import peakline


def test_libraries_say_they_are_there() -> None:
    with peakline.virtual_gpu("h200"):
        assert torch.backends.cudnn.is_available()
        assert torch.backends.cudnn.version() >= 90000
        assert torch.version.cuda is not None
        assert torch.cuda.nccl.version() >= (2, 10)
        assert torch.backends.cudnn.is_acceptable(torch.zeros(1, device="cuda"))
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            assert torch.backends.cudnn.benchmark
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_float32_matmul_precision("highest")
        assert torch.backends.cuda.cublas_workspace_size() > 0


def test_cleared_cublas_workspaces_are_given_back_and_made_again() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.zeros(64, 64, device="cuda")
        x @ x
        used = torch.cuda.memory_allocated()
        torch._C._cuda_clearCublasWorkspaces()
        assert torch.cuda.memory_allocated() == used - (32 << 20)
        x @ x
        assert torch.cuda.memory_allocated() == used


def first_product() -> int:
    """What cuBLAS takes with its first use."""
    x = torch.zeros(64, 64, device="cuda")
    y = torch.empty(64, 64, device="cuda")
    before = torch.cuda.memory_allocated()
    torch.mm(x, x, out=y)
    return torch.cuda.memory_allocated() - before


def test_what_torch_says_of_cublas_workspaces_is_what_is_allocated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with peakline.virtual_gpu("a100-80"):
        assert torch._C._cuda_getCublasWorkspaceSize() == first_product() == 8519680
        assert torch._C._cuda_getCublasLtWorkspaceSize() == 1 << 20
    with peakline.virtual_gpu("h200"):
        # Scripts set it in their first lines.
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
        assert torch._C._cuda_getCublasWorkspaceSize() == first_product() == 128 << 10


def test_a_cublas_workspace_that_is_set_larger_is_made_anew() -> None:
    with peakline.virtual_gpu("h200"):
        assert first_product() == 32 << 20
        torch._C._cuda_setCublasWorkspaceSize(16 << 20)
        assert first_product() == 0  # the one there is large enough
        torch._C._cuda_setCublasWorkspaceSize(64 << 20)
        assert first_product() == 32 << 20  # and the smaller one is gone
        torch._C._cuda_resetCublasWorkspaceSize()
        assert torch._C._cuda_getCublasWorkspaceSize() == 32 << 20


def test_the_preferred_library_decides_whose_workspace_is_taken() -> None:
    with peakline.virtual_gpu("h200"):
        assert first_product() == 32 << 20
        before = torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.preferred_blas_library("cublaslt")
        try:
            assert first_product() == 1 << 20
        finally:
            torch.backends.cuda.preferred_blas_library(before)


def test_attention_switches_count_at_once_also_for_who_asks_by_name() -> None:
    with peakline.virtual_gpu("h200"):
        q = torch.zeros(2, 8, 128, 64, device="cuda", dtype=torch.bfloat16)
        assert torch._fused_sdp_choice(q, q, q) == 3
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            assert torch._fused_sdp_choice(q, q, q) == 0


def test_ranges_of_nvtx_nest_and_do_nothing() -> None:
    with peakline.virtual_gpu("h200"):
        assert torch.cuda.nvtx.range_push("a") == 0
        assert torch.cuda.nvtx.range_push("b") == 1
        assert torch.cuda.nvtx.range_pop() == 1
        with torch.cuda.nvtx.range("step {}", 1):
            torch.cuda.nvtx.mark("here")
        torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("c"))


def test_a_function_of_the_driver_that_is_not_answered_is_refused_by_name() -> None:
    with (
        peakline.virtual_gpu("h200"),
        pytest.raises(RuntimeError, match="_cuda_getCurrentBlasHandle is not available"),
    ):
        torch.cuda.current_blas_handle()


def test_recurrent_networks_take_the_way_of_cudnn() -> None:
    with peakline.virtual_gpu("h200"):
        model = torch.nn.LSTM(16, 32, 2, batch_first=True, dropout=0.1).cuda()
        y, (h, c) = model(torch.zeros(4, 7, 16, device="cuda"))
        assert y.shape == (4, 7, 32)
        assert h.shape == c.shape == (2, 4, 32)
        y.sum().backward()


def test_data_parallel_uses_all_devices() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        model = torch.nn.DataParallel(torch.nn.Linear(32, 32).cuda())
        y = model(torch.zeros(8, 32, device="cuda"))
        assert y.shape == (8, 32)
        y.sum().backward()
        assert torch.cuda.max_memory_allocated(1) > 0
