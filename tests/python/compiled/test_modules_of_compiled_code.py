"""Buffers of compiled code belong to the modules and lines that Inductor's metadata names."""

import contextlib
import inspect
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline
from peakline._compiled_code.buffers import noted_code

WRITTEN = '''
# Topologically Sorted Source Nodes: [linear, gelu], Original ATen: [aten.addmm, aten.gelu]
triton_poi_0 = async_compile.triton("triton_poi_0", """
""")

cpp_fused_1 = async_compile.cpp_pybinding([], """
""")

class Runner:
    def call(self, args):
        primals_1, = args
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
            # Topologically Sorted Source Nodes: [norm, linear], Original ATen: [aten.addmm]
            extern_kernels.mm(primals_1, primals_1, out=buf0)
            buf1 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
            buf2 = reinterpret_tensor(buf1, (64,), (1,)); del buf1  # reuse
            raw_stream0 = get_raw_stream(0)
            triton_poi_0.run(buf0, buf2, 64, stream=raw_stream0)
            buf3 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
            cpp_fused_1(buf2, buf3)
            # Topologically Sorted Source Nodes: [attend], Original ATen: [aten.attend]
            buf4 = torch.ops.aten.attend.default(buf3)
        return (buf0, buf4)
'''


def test_a_buffer_belongs_to_the_kernel_that_fills_it() -> None:
    found = noted_code(WRITTEN, "written.py")
    assert found is not None
    assert list(found.functions) == ["Runner.call"]
    # buf0 by the comment beside the call, buf1 (by its other name) by the one over the kernel,
    # buf3 by none, and buf4 is a library's own result.
    assert found.buffers == [("norm", "linear"), ("linear", "gelu"), ("attend",)]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(256) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def trained(net: nn.Module, compiled: Any, device: str) -> None:
    for _ in range(2):
        compiled(torch.rand(8192, 256, device=device)).square().mean().backward()
        net.zero_grad()


def blocks_of(run: peakline.Run, folder: Path) -> set[tuple[str, str, int]]:
    """Module, name and bytes of all that was allocated."""
    peakline.export(run, folder / "run.db", to="sqlite", tables=["blocks"])
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as database:
        return set(database.execute("SELECT module, name, bytes FROM blocks").fetchall())


@pytest.mark.parametrize("again", [False, True])
def test_modules_own_what_their_kernels_fill_also_where_the_code_is_cached(again: bool) -> None:
    with peakline.virtual_gpu("h200") as run:
        net = Net().cuda()
        trained(net, torch.compile(net), "cuda")
    found = run.peak("cuda:0").by_module
    wide = 8192 * 1024 * 4
    for block in ("Net.blocks.0", "Net.blocks.1"):
        assert found[f"{block}.up"] >= wide


def test_blocks_that_share_compiled_code_own_their_own_buffers(tmp_path: Path) -> None:
    with peakline.virtual_gpu("h200") as run:
        net = Net().cuda()
        for block in net.blocks:
            block.compile()
        trained(net, net, "cuda")
    found = {(module, size) for module, _, size in blocks_of(run, tmp_path)}
    assert {(f"Net.blocks.{number}.up", 8192 * 1024 * 4) for number in range(2)} <= found


def test_a_real_run_is_attributed_and_its_code_put_back() -> None:
    """Inductor's C++ kernels have no metadata; library calls do."""
    torch._dynamo.reset()
    net = Net()
    compiled = torch.compile(net)
    with peakline.track(net) as run:
        trained(net, compiled, "cpu")
        noting = [module for module in codes() if hasattr(module, "_peakline_note")]
        assert noting
    assert run.peak("cpu").by_module["Net.blocks.0.up"] >= 8192 * 1024 * 4
    assert not [module for module in codes() if hasattr(module, "_peakline_note")]
    trained(net, compiled, "cpu")


def codes() -> list[Any]:
    import torch._inductor.codecache

    return list(torch._inductor.codecache.PyCodeCache.modules)


def test_buffers_are_named_by_the_line_they_were_traced_from(tmp_path: Path) -> None:
    line = inspect.getsourcelines(Block.forward)[1] + 1
    with peakline.virtual_gpu("h200") as run:
        net = Net().cuda()
        trained(net, torch.compile(net), "cuda")
    found = {(module, name) for module, name, _ in blocks_of(run, tmp_path)}
    assert ("Net.blocks.1.up", f"{Path(__file__).name}:{line}") in found


def test_lines_are_those_of_the_program_and_not_of_the_code_that_inductor_wrote() -> None:
    with peakline.virtual_gpu("h200") as run:
        net = Net().cuda()
        trained(net, torch.compile(net), "cuda")
    rows = [row for row in run.lines(100, device="cuda:0") if row.largest >= 1 << 20]
    assert rows
    assert {row.place.file for row in rows} == {__file__}


def test_a_program_that_compiles_nothing_imports_no_compiler() -> None:
    program = (
        "import sys, torch, peakline\n"
        "with peakline.track(): torch.rand(8)\n"
        "assert not [name for name in sys.modules if name.startswith('torch._inductor.')]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
