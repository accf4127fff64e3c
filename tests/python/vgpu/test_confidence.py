"""An estimate says which part of its peak is exact, modelled or guessed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import peakline


def confidence_of(work: Callable[[], object]) -> tuple[dict[str, int], int]:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        kept = work()
        peak = torch.cuda.max_memory_allocated()
        del kept
    return gpu.confidence(), peak


def test_tensors_and_matrix_products_are_exact() -> None:
    def work() -> object:
        x = torch.rand(512, 512, device="cuda")
        return x @ x

    parts, peak = confidence_of(work)
    assert parts == {"exact": peak, "modelled": 0, "guessed": 0}


def test_a_cudnn_workspace_at_the_peak_is_modelled() -> None:
    def work() -> object:
        net = nn.Conv2d(128, 128, 3, padding=1, device="cuda", dtype=torch.bfloat16)
        return net(torch.rand(8, 128, 32, 32, device="cuda", dtype=torch.bfloat16))

    parts, peak = confidence_of(work)
    assert parts["modelled"] > 0
    assert parts["guessed"] == 0
    assert sum(parts.values()) == peak


def test_what_no_rule_explains_is_guessed() -> None:
    def work() -> object:
        net = nn.LSTM(64, 64, 2, proj_size=32, device="cuda")  # none with projections was measured
        return net(torch.rand(10, 4, 64, device="cuda"))

    parts, peak = confidence_of(work)
    assert parts["guessed"] > 8 << 20
    assert sum(parts.values()) == peak


def test_results_of_libraries_without_a_rule_are_guessed() -> None:
    parts, _ = confidence_of(lambda: torch.fft.fft(torch.rand(4096, device="cuda")))
    assert parts["guessed"] == 4096 * 8


def test_bytes_freed_before_the_peak_do_not_count() -> None:
    def work() -> object:
        net = nn.Conv2d(64, 64, 3, padding=1, device="cuda", dtype=torch.bfloat16)
        net(torch.rand(2, 64, 16, 16, device="cuda", dtype=torch.bfloat16))
        return torch.zeros(64 << 20, device="cuda")

    parts, peak = confidence_of(work)
    assert parts == {"exact": peak, "modelled": 0, "guessed": 0}
