"""Custom ops: with a fake they run, without one a sentence says which lines are missing."""

from pathlib import Path
from typing import Any

import pytest
import torch

import peakline

SCRIPT = """
import torch
library = torch.library.Library("peakline_script", "DEF")
library.define("stretch(Tensor x, int times) -> Tensor")
library.impl("stretch", lambda x, times: x.repeat(times), "CUDA")
x = torch.ones(1 << 20, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
x.sum().backward()
y = torch.ops.peakline_script.stretch(x.detach(), 3)
optimizer.step()
"""
DECORATED = """
import torch
@torch.library.custom_op("peakline_script::stretch", mutates_args=(), device_types="cuda")
def stretch(x: torch.Tensor, times: int) -> torch.Tensor:
    return x.repeat(times)
y = stretch(torch.ones(1 << 20, device="cuda"), 3)
"""
FAKE = """
import torch
@torch.library.register_fake("peakline_script::stretch")
def _(x, times):
    return x.new_empty(x.numel() * times)
"""


def test_without_a_fake_the_lines_that_register_one_are_shown() -> None:
    library = torch.library.Library("peakline_test", "DEF")
    library.define("scale(Tensor x, float factor) -> Tensor")
    library.impl("scale", lambda x, factor: x * factor, "CUDA")
    with peakline.virtual_gpu("h200"):
        x = torch.empty(8, device="cuda")
        with pytest.raises(NotImplementedError) as caught:
            torch.ops.peakline_test.scale(x, 2.0)
        message = str(caught.value)
        assert message.startswith("peakline's virtual GPU cannot run peakline_test::scale")
        for line in (
            '@torch.library.register_fake("peakline_test::scale")',
            "def _(x, factor):",
            "return torch.empty_like(x)",
        ):
            assert line in message
        torch.library.register_fake(
            "peakline_test::scale", lambda x, factor: torch.empty_like(x), lib=library
        )
        assert torch.ops.peakline_test.scale(x, 2.0).shape == (8,)


def test_a_result_is_new_where_the_fake_returns_its_argument() -> None:
    """As the schema says. The kernel makes one."""
    library = torch.library.Library("peakline_same", "DEF")
    library.define("attend(Tensor x) -> Tensor")
    library.define("given(Tensor(a!) x) -> Tensor(a!)")
    library.impl("attend", lambda x: x.contiguous(), "Meta")
    library.impl("given", lambda x: x, "Meta")
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        x = torch.empty(1 << 20, dtype=torch.int8, device="cuda")
        y = torch.ops.peakline_same.attend(x)
        assert y.data_ptr() != x.data_ptr()
        assert torch.cuda.memory_allocated() == 2 << 20
        assert torch.ops.peakline_same.given(x) is x
    assert gpu.confidence()["outputs_only"] == 1 << 20


def test_fakes_of_a_file_serve_ops_that_the_script_defines(estimate: Any, tmp_path: Path) -> None:
    script, fakes = tmp_path / "train.py", tmp_path / "fakes.py"
    script.write_text(SCRIPT.replace("peakline_script", "peakline_bare"))
    fakes.write_text(FAKE)
    done = estimate(str(script))
    assert done.returncode == 1
    assert "register_fake" in done.stderr
    script.write_text(SCRIPT)
    done = estimate(str(script), "--fakes", str(fakes))
    assert done.returncode == 0, done.stderr


def test_ops_that_python_decorates_are_served_and_named_alike(
    estimate: Any, tmp_path: Path
) -> None:
    script, fakes = tmp_path / "train.py", tmp_path / "fakes.py"
    script.write_text(DECORATED.replace("peakline_script", "peakline_bare_decorated"))
    done = estimate(str(script))
    assert done.returncode == 1
    assert "cannot run peakline_bare_decorated::stretch" in done.stderr
    assert "def _(x, times):" in done.stderr
    script.write_text(DECORATED.replace("peakline_script", "peakline_decorated"))
    fakes.write_text(FAKE.replace("peakline_script", "peakline_decorated"))
    done = estimate(str(script), "--fakes", str(fakes))
    assert done.returncode == 0, done.stderr


def test_a_file_of_fakes_that_fails_is_one_sentence(estimate: Any, tmp_path: Path) -> None:
    script, fakes = tmp_path / "train.py", tmp_path / "fakes.py"
    script.write_text(SCRIPT)
    fakes.write_text("import nothing_of_that_name\n")
    done = estimate(str(script), "--fakes", str(fakes))
    assert done.returncode == 2
    assert "which --fakes names, failed: ModuleNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr
    done = estimate(str(script), "--fakes", str(tmp_path / "none.py"))
    assert done.returncode == 2
    assert "cannot read" in done.stderr
