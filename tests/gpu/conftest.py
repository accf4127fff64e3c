"""Every test here needs a real GPU, and is skipped where there is none.

The tests themselves use no pytest: a machine for measuring may have none, and runs them with
tools/run_plain_tests.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_support import fresh


def has_gpu() -> bool:
    """Asked in a child: some tests are about a process that never touches CUDA."""
    code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", code]).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    if not mine:
        return
    skip = None if has_gpu() else pytest.mark.skip(reason="no NVIDIA GPU, or a torch without CUDA")
    for item in mine:
        item.add_marker(pytest.mark.gpu)
        if skip is not None:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    fresh()
    yield
    fresh()
