"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import pytest

import peakline

pytest_plugins = ["pytester"]

pytestmark = pytest.mark.skipif(
    not hasattr(peakline, "virtual_gpu"), reason="this peakline has no virtual GPU"
)

MODEL = """
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, save):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(8)
        )
        self.save = save

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.save else layer(x)
        return x


def step(save):
    model = Net(save).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(4096, 256, device="cuda", requires_grad=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def run(pytester: pytest.Pytester, code: str) -> pytest.RunResult:
    pytester.makepyfile(MODEL + code)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v")


def test_a_test_and_its_fixtures_run_on_a_gpu_that_is_gone_afterwards(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
REAL = torch.cuda.is_available()


@pytest.fixture
def model():
    return Net(False).cuda()


@pytest.mark.limit_gpu_memory("1 GiB", gpu="h100")
def test_fits():
    step(save=True)
    assert torch.cuda.max_memory_allocated() > 0


@pytest.mark.limit_gpu_memory(2**30)
def test_fixture(model):
    assert next(model.parameters()).is_cuda
    assert torch.cuda.memory_allocated() > 16 << 20


@pytest.mark.limit_gpu_memory("1 GiB")
def test_own_error():
    raise ValueError("of the test itself")


@pytest.mark.limit_gpu_memory("64 MiB")
def test_caught():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 30, device="cuda")


def test_without_the_mark():
    assert torch.cuda.is_available() == REAL
""",
    )
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*::test_fits PASSED*",
            "*::test_fixture PASSED*",
            "*::test_own_error FAILED*",
            "*::test_caught FAILED*",
            "*::test_without_the_mark PASSED*",
            "*ValueError: of the test itself*",
            "*does not fit in 64 MiB*",
        ]
    )


def test_a_checkpoint_that_is_gone_fails_and_names_the_activations(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
@pytest.mark.limit_gpu_memory("300 MiB", gpu="h100")
@pytest.mark.parametrize("save", [True, False])
def test_step(save):
    step(save)
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*::test_step?True? PASSED*",
            "*::test_step?False? FAILED*",
            "*does not fit in 300 MiB of a virtual h100: out of memory at *.py:*: *",
            "*  Peak allocated * MiB   step 1, forward*",
            "*  Peak reserved * MiB *",
            "*  Memory limit * does not fit: out of memory once*",
            "*By category at the peak*",
            "*  Activation *",
            "*Modules at the peak*",
            "*  Net *",
            "*Top ops*",
            "*  aten::*",
        ]
    )


def test_a_mark_that_says_nothing_is_refused_in_one_sentence(pytester: pytest.Pytester) -> None:
    marks = ["()", "(None)", '("many")', '("1 GiB", gpu="abacus")']
    result = run(
        pytester,
        "".join(
            f"\n@pytest.mark.limit_gpu_memory{mark}\ndef test_{i}():\n    pass\n"
            for i, mark in enumerate(marks)
        ),
    )
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(
        [
            "*limit_gpu_memory: *missing*limit*write @pytest.mark.limit_gpu_memory*",
            "*limit_gpu_memory: None is no size*",
            "*limit_gpu_memory: *many*",
            "*limit_gpu_memory: *abacus*",
        ]
    )


def test_pytest_without_the_mark_does_not_import_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\n\ndef test_it():\n    assert 'torch' not in sys.modules\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
