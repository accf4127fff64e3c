"""Extensions that a script builds from CUDA code: never built, and one sentence says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from estimate_support import Answer, Estimate, write

BUILDS = """
    import torch
    from torch.utils.cpp_extension import load
    stretched = load("stretched", sources=["stretched.cpp", "stretched_kernel.cu"])
    weight = torch.zeros(1 << 18, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    y = stretched.stretch(weight.detach(), 3)
    weight.sum().backward()
    optimizer.step()
"""
INLINE = BUILDS.replace("import load", "import load_inline as load").replace(
    'sources=["stretched.cpp", "stretched_kernel.cu"]', '"", cuda_sources="__global__ void f() {}"'
)
FAKES = """
    class stretched:
        @staticmethod
        def stretch(x, times):
            return x.new_empty(x.numel() * times)
"""
DEEPSPEED = """
    import torch
    from torch.utils.cpp_extension import load
    weight = torch.zeros(1 << 18, device="cuda", requires_grad=True)
    weight.sum().backward()
    fused = load("fused_adam", ["/deepspeed/csrc/adam/multi_tensor_adam.cu"], with_cuda=True)
    before = torch.cuda.memory_allocated()
    fused.multi_tensor_adam(1 << 16, None, [[weight.grad], [weight]], 1e-3)
    assert torch.cuda.memory_allocated() == before
"""


@pytest.mark.parametrize("source", [BUILDS, INLINE], ids=["load", "load_inline"])
def test_an_extension_of_cuda_code_is_not_built_and_the_sentence_names_fakes(
    folder: Path, estimate: Estimate, source: str
) -> None:
    write(folder, "builds.py", source)
    done = estimate("builds.py")
    assert done.returncode == 1
    (sentence,) = (line for line in done.stderr.splitlines() if line.startswith("RuntimeError"))
    assert "the extension stretched is CUDA code" in sentence
    assert "--fakes FILE.py, a class stretched of that file takes its place" in sentence
    assert "peakline: the script failed (status 1)\n" in done.stderr
    assert "nothing to estimate" in done.stderr


@pytest.mark.parametrize("source", [BUILDS, INLINE], ids=["load", "load_inline"])
def test_a_class_of_the_file_of_fakes_takes_an_extensions_place(
    folder: Path, answer: Answer, source: str
) -> None:
    write(folder, "builds.py", source)
    write(folder, "fakes.py", FAKES)
    found = answer("builds.py", "--fakes", "fakes.py")
    assert found["partial"] is False
    assert found["peak_allocated"] >= (1 + 3) * 2**20


def test_deepspeeds_fused_optimizers_have_stand_ins_that_allocate_nothing(
    folder: Path, answer: Answer
) -> None:
    write(folder, "fused.py", DEEPSPEED)
    found = answer("fused.py")
    assert any("DeepSpeed's fused optimizers" in warning for warning in found["warnings"])


def test_without_stand_ins_deepspeeds_optimizers_are_refused_as_any_cuda_code(
    folder: Path, estimate: Estimate
) -> None:
    write(folder, "fused.py", DEEPSPEED)
    done = estimate("fused.py", "--no-stand-ins")
    assert done.returncode == 1
    assert "the extension fused_adam is CUDA code" in done.stderr


def test_after_a_virtual_gpu_torch_builds_extensions_itself_again(
    folder: Path, estimate: Estimate
) -> None:
    from torch.utils import cpp_extension

    before = cpp_extension.load, cpp_extension.load_inline
    write(folder, "builds.py", BUILDS)
    estimate("builds.py")
    assert (cpp_extension.load, cpp_extension.load_inline) == before
