"""Where Inductor measures, a rule answers."""

import math
from pathlib import Path

import pytest
import torch

import peakline
from peakline._virtual_cuda._compiled._clocks import clocks_of
from peakline._virtual_cuda._compiled._roofline import Roofline, row_alignment


@pytest.mark.parametrize(
    ("dtype", "columns", "pads"),
    [
        (torch.bfloat16, 50257, True),  # GPT-2's vocabulary, as seen on an H200
        (torch.float16, 4098, True),
        (torch.bfloat16, 50304, False),  # nothing to pad
        (torch.float32, 50257, False),  # no tensor cores: alignment is all the same
    ],
)
def test_products_are_padded_where_tensor_cores_gain_more_than_the_copies_cost(
    dtype: torch.dtype, columns: int, pads: bool
) -> None:
    with peakline.virtual_gpu("h200") as run:
        a = torch.empty(4096, 768, device="cuda", dtype=dtype)
        b = torch.empty(768, columns, device="cuda", dtype=dtype)
        product = torch.compile(lambda a, b: a @ b)
        product(a, b)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        product(a, b)
        above = torch.cuda.max_memory_allocated() - before
    rows = 4096 * columns * dtype.itemsize
    assert (above > 1.1 * rows) == pads, run


def test_what_is_measured_takes_memory_and_so_it_does_where_the_code_was_cached() -> None:
    def estimate() -> tuple[int, bool]:
        gpu = peakline.virtual_gpu("h200")
        with gpu:
            a = torch.empty(4096, 768, device="cuda", dtype=torch.bfloat16)
            b = torch.empty(768, 50257, device="cuda", dtype=torch.bfloat16)
            before = torch.cuda.memory_allocated()
            torch.compile(_largest)(a, b)
            above = torch.cuda.max_memory_allocated() - before
        return above, any("a rule answered" in note for note in gpu.notes())

    above, told = estimate()
    copies, product = (4096 + 50257) * 768 * 2, 4096 * 50257 * 2
    assert above > copies + product, "the operands once more, and the product"
    assert told
    assert estimate() == (above, told)


def _largest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).amax()


def test_max_autotune_shows_no_times(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They would be those of a rule."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with peakline.virtual_gpu("h200"):
        a = torch.rand(272, 144, device="cuda")
        best = torch.compile(lambda a: (a @ a.T).cos(), mode="max-autotune-no-cudagraphs")
        best(a)
    shown = "".join(capfd.readouterr())
    assert "autotune" not in shown.lower()


def test_max_autotune_takes_the_librarys_kernel() -> None:
    with peakline.virtual_gpu("h200"):
        a = torch.empty(256, 512, device="cuda", dtype=torch.bfloat16)
        best = torch.compile(lambda a: (a @ a.T).relu(), mode="max-autotune-no-cudagraphs")
        assert best(a).shape == (256, 256)
        assert best(a).dtype == torch.bfloat16


def test_rows_that_begin_at_odd_places_are_slow() -> None:
    roofline = Roofline(132, clocks_of("NVIDIA H200"))
    odd = roofline.product_seconds(4096, 4096, 4095, torch.bfloat16, 2)
    even = roofline.product_seconds(4096, 4096, 4096, torch.bfloat16, 16)
    assert 5 < odd / even < 8
    assert row_alignment(torch.empty(8, 50257, dtype=torch.bfloat16)) == 2
    assert row_alignment(torch.empty(50257, 8, dtype=torch.bfloat16).T) == 16
    assert math.isclose(roofline.copy_seconds(4_200_000_000), 1e-3)


def test_a_generated_kernel_is_tuned_at_its_first_call() -> None:
    l2 = 60 * 2**20  # of an H200
    with peakline.virtual_gpu("h200"):
        a = torch.zeros(2048, 2048, device="cuda")
        b = torch.zeros(2048, 2048, device="cuda")
        step = torch.compile(
            lambda a, b: b.add_(a.t())
        )  # tiles in two dimensions, in one of several sizes
        peaks = []
        for _ in range(2):
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            step(a, b)
            peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[0] >= l2 + b.nbytes  # and copies of what is written
    assert peaks[1] == 0
