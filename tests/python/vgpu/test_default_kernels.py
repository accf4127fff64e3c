"""Custom ops with one kernel in Python for every device: it runs, and where it cannot, the fake."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import peakline

MIB = 2**20
SPACE = "peakline_default"


def missing(*args: Any) -> Any:
    raise ModuleNotFoundError("No module named 'my_extension'")


@pytest.fixture
def op() -> Iterator[Callable[..., Any]]:
    """Makes ops that nobody knows after the test."""
    made: list[Any] = []

    def define(name: str, kernel: Any, fake: Any = None, writes: Any = (), **kwargs: Any) -> Any:
        schema = kwargs.pop("schema", "(Tensor x) -> Tensor")
        defined = torch.library.custom_op(
            f"{SPACE}::{name}", kernel, mutates_args=writes, schema=schema, **kwargs
        )
        made.append(defined)
        if fake is not None:
            defined.register_fake(fake)
        return defined

    yield define
    for defined in made:
        defined._lib._destroy()


def notes(gpu: Any) -> list[str]:
    return [note for note in gpu.notes() if SPACE in note]


def with_scratch(x: torch.Tensor) -> torch.Tensor:
    x.new_empty(4 * x.numel()).zero_()
    return x.clone()


def test_a_kernel_that_runs_counts_with_its_scratch(op: Any) -> None:
    double = op("double", with_scratch, torch.empty_like)
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        double(torch.empty(MIB, dtype=torch.int8, device="cuda"))
        assert torch.cuda.max_memory_allocated() == 5 * MIB
    assert gpu.confidence()["outputs_only"] == 0
    assert not notes(gpu)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_fake_of_a_kernel_that_fails_says_what_comes_out(op: Any, compiled: bool) -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        double = op("double", missing, torch.empty_like)
        function = torch.compile(double) if compiled else double
        for _ in range(2):  # the second time without trying
            x = torch.empty(MIB, dtype=torch.int8, device="cuda")
            y = function(x)
            assert y.device.type == "cuda"
            assert torch.cuda.memory_allocated() == 2 * MIB
            del x, y
            assert torch.cuda.memory_allocated() == 0
        x = torch.empty(MIB, dtype=torch.int8, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        function(x)
    assert gpu.confidence()["outputs_only"] == MIB
    (note,) = notes(gpu)
    assert note.startswith("of peakline_default::double only the results are counted, as ")
    assert note.endswith("(ModuleNotFoundError: No module named 'my_extension')")


def test_backward_goes_through_such_ops(op: Any) -> None:
    forward = op("forward", missing, torch.empty_like)
    backward = op("backward", missing, torch.empty_like)
    forward.register_autograd(lambda ctx, grad: backward(grad))
    with peakline.virtual_gpu("h200"):
        x = torch.empty(MIB, device="cuda", requires_grad=True)
        forward(x).sum().backward()
        assert x.grad is not None


def test_an_op_that_only_writes_needs_no_fake(op: Any) -> None:
    scale = op("scale_", missing, writes={"x"}, schema="(Tensor(a!) x) -> ()")
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        x = torch.empty(MIB, device="cuda")
        before = x._version
        scale(x)
        assert x._version > before
    assert len(notes(gpu)) == 1


def test_without_a_fake_the_error_says_which_lines_are_missing(op: Any) -> None:
    double = op("double", missing)
    with peakline.virtual_gpu("h200"):
        with pytest.raises(ModuleNotFoundError, match="my_extension") as caught:
            double(torch.empty(MIB, device="cuda"))
        (sentence,) = caught.value.__notes__
    assert sentence.startswith(
        "peakline's virtual GPU cannot run peakline_default::double, because its own code fails "
        "there (ModuleNotFoundError: No module named 'my_extension') and nothing tells"
    )
    assert '@torch.library.register_fake("peakline_default::double")' in sentence


def test_wrong_arguments_are_the_programs_error(op: Any) -> None:
    def fails_on_rows(x: torch.Tensor) -> torch.Tensor:
        if x.dim() != 2:
            raise ValueError("two dimensions, please")
        return with_scratch(x)

    double = op("double", fails_on_rows, fails_on_rows)
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        with pytest.raises(ValueError, match="two dimensions"):
            double(torch.empty(MIB, dtype=torch.int8, device="cuda"))
        held = torch.cuda.memory_allocated()  # by the exception
        double(torch.empty(MIB, 1, dtype=torch.int8, device="cuda"))
        assert torch.cuda.max_memory_allocated() == held + 5 * MIB
    assert not notes(gpu)


def test_memory_that_runs_out_is_no_reason_for_the_fake(op: Any) -> None:
    double = op("double", with_scratch, torch.empty_like)
    with peakline.virtual_gpu("h200", memory="32MiB"):
        x = torch.empty(8 * MIB, dtype=torch.int8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            double(x)


def test_the_fake_answers_for_a_kernel_of_cuda(op: Any) -> None:
    """The other one is for the CPU, say with numpy."""
    double = op("double", with_scratch, torch.empty_like)
    double.register_kernel("cuda", missing)
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        double(torch.empty(MIB, dtype=torch.int8, device="cuda"))
        assert torch.cuda.max_memory_allocated() == 2 * MIB
    (note,) = notes(gpu)
    assert "only the results are counted: what they need" in note


def test_without_a_fake_the_default_code_is_a_guess_at_a_kernel_of_cuda(op: Any) -> None:
    double = op("double", with_scratch)
    double.register_kernel("cuda", missing)
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        double(torch.empty(MIB, dtype=torch.int8, device="cuda"))
    assert gpu.confidence()["guessed"] == 4 * MIB
    (note,) = notes(gpu)
    assert "has a kernel for CUDA and no fake" in note


def test_kernels_of_a_library_are_served_alike() -> None:
    library = torch.library.Library(f"{SPACE}_library", "DEF")
    library.define("double(Tensor x) -> Tensor")
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        library.impl("double", missing, "CompositeExplicitAutograd")
        torch.library.register_fake(
            f"{SPACE}_library::double", torch.empty_like, lib=library, allow_override=True
        )
        function = getattr(torch.ops, f"{SPACE}_library").double
        assert function(torch.empty(MIB, device="cuda")).shape == (MIB,)
    assert len(notes(gpu)) == 1


def test_known_values_do_not_run_a_kernel_for_the_cpu_that_fails(op: Any) -> None:
    double = op("double", missing, torch.empty_like, device_types=("cpu", "cuda"))
    with peakline.virtual_gpu("h200"):
        assert double(torch.ones(3, device="cuda")).shape == (3,)


def test_an_op_that_is_defined_anew_is_tried_anew(op: Any) -> None:
    with peakline.virtual_gpu("h200"):
        op("double", missing, torch.empty_like)(torch.empty(MIB, dtype=torch.int8, device="cuda"))
        double = op("double", with_scratch, torch.empty_like)
        torch.cuda.reset_peak_memory_stats()
        double(torch.empty(MIB, dtype=torch.int8, device="cuda"))
        assert torch.cuda.max_memory_allocated() == 5 * MIB


def test_afterwards_the_ops_are_as_before(op: Any) -> None:
    double = op("double", missing, torch.empty_like)
    with peakline.virtual_gpu("h200"):
        double(torch.empty(MIB, device="cuda"))
    name = f"{SPACE}::double"
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")
    with pytest.raises(ModuleNotFoundError):
        double(torch.empty(3))


SCRIPT = """
import ctypes
import torch

@torch.library.custom_op("peakline_script::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    ctypes.CDLL("libof_no_such_kernels.so").launch(x.data_ptr(), y.data_ptr())
    return y
#fake
x = torch.ones(1 << 20, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for _ in range(3):
    x.sum().backward()
    scale(x.detach())
    optimizer.step()
"""
FAKE = """
@scale.register_fake
def _(x):
    return torch.empty_like(x)
"""


def test_in_an_estimate(estimate: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("#fake", FAKE))
    done = estimate(str(script))
    assert done.returncode == 0, done.stderr
    assert "peakline_script::scale only the results are" in done.stdout
    script.write_text(SCRIPT)
    done = estimate(str(script))
    assert done.returncode == 1
    assert "cannot run peakline_script::scale, because its own code fails there" in done.stderr
    assert done.stderr.count("Traceback") == 1
