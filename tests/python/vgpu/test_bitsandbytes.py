"""bitsandbytes on a virtual GPU: a package laid out as it is, and itself where it is installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = {
    "__init__.py": """
        import torch
        from . import _ops
        if torch.cuda.is_available():
            from .backends.cuda import ops
    """,
    "cextension.py": """
        class Missing:
            def __getattr__(self, name):
                raise RuntimeError("no native library")
        lib = Missing()
    """,
    "_ops.py": """
        import torch
        register_kernel = torch.library.register_kernel
        torch.library.define("bitsandbytes::unpack", "(Tensor packed) -> Tensor")

        @register_kernel("bitsandbytes::unpack", None)
        def _(packed):
            return (packed.float() * 2).to(torch.bfloat16).repeat(2)
    """,
    "backends/__init__.py": "",
    "backends/cuda/__init__.py": "",
    "backends/cuda/ops.py": """
        import torch
        from ..._ops import register_kernel
        from ...cextension import lib

        lib.cunpack.argtypes = []

        @register_kernel("bitsandbytes::unpack", "cuda")
        def _(packed):
            out = torch.empty(2 * packed.numel(), dtype=torch.bfloat16, device=packed.device)
            lib.cunpack(packed.data_ptr(), out.data_ptr())
            return out
    """,
}

UNPACK = """
    import torch, peakline
    with peakline.virtual_gpu("h200"):
        import bitsandbytes
        packed = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
        torch.ops.bitsandbytes.unpack(packed)
        assert torch.cuda.max_memory_allocated() == 5 << 20, torch.cuda.max_memory_allocated()
    try:
        bitsandbytes.cextension.lib.cunpack()
    except RuntimeError as error:
        assert "no native library" in str(error)
    else:
        raise AssertionError("kernels are still left out")
"""

REAL = """
    import torch, peakline
    with peakline.virtual_gpu("h200"):
        import bitsandbytes as bnb
        layer = bnb.nn.Linear4bit(1024, 4096, bias=False, compress_statistics=False).cuda()
        blocks = 1024 * 4096 // 64
        assert abs(torch.cuda.memory_allocated() - 1024 * 4096 // 2 - 4 * blocks) <= 1024
        model = torch.nn.Linear(1024, 1024, bias=False).cuda()
        optimizer = bnb.optim.AdamW8bit(model.parameters())
        model(torch.zeros(8, 1024, device="cuda")).sum().backward()
        before = torch.cuda.memory_allocated()
        optimizer.step()
        state = torch.cuda.memory_allocated() - before
        assert 2 << 20 < state < 2.1 * (1 << 20), state  # two bytes, and a number for each 256
"""


def run(source: str, *paths: Path) -> None:
    script = textwrap.dedent(source)
    environment = {"PYTHONPATH": ":".join([*map(str, paths), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_its_own_python_allocates_and_its_kernels_are_left_out(tmp_path: Path) -> None:
    for name, source in PACKAGE.items():
        path = tmp_path / "bitsandbytes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
    run(UNPACK, tmp_path)


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
def test_weights_of_four_bits_and_states_of_eight_have_their_sizes() -> None:
    run(REAL)
