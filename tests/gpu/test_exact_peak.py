"""On a real GPU the recording's peak is the allocator's own, to the byte.

Run by pytest, or alone with a file of workloads:  python tests/gpu/test_exact_peak.py FILE [NAME…]
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import torch
from gpu_support import check_file_of_workloads, fresh
from torch import nn
from torch.utils.checkpoint import checkpoint

import peakline


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Transformer(nn.Module):
    def __init__(self, width: int = 512, layers: int = 4, checkpointed: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 1000)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 3, 1, 1), nn.BatchNorm2d(128), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Training:
    def __init__(
        self, model: nn.Module, inputs: Callable[[], torch.Tensor], **options: Any
    ) -> None:
        self.model = model.cuda()
        self.opt = torch.optim.AdamW(self.model.parameters(), **options)
        self.inputs = inputs
        self.autocast = torch.bfloat16

    def step(self) -> None:
        with torch.autocast("cuda", dtype=self.autocast):
            loss = self.model(self.inputs()).float().square().mean()
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


def tokens() -> torch.Tensor:
    return torch.randint(0, 1000, (8, 256), device="cuda")


WORKLOADS: dict[str, Callable[[], Any]] = {
    "transformer": lambda: Training(Transformer(), tokens),
    "transformer_checkpointed": lambda: Training(Transformer(checkpointed=True), tokens),
    "transformer_fused": lambda: Training(Transformer(), tokens, fused=True),
    "convolutions": lambda: Training(
        Convolutions(), lambda: torch.rand(16, 3, 224, 224, device="cuda")
    ),
}


def check(workload: Any, steps: int = 3, known: bool = True, ops: bool = True) -> dict[str, int]:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    arguments = (workload.model, workload.opt) if known else ()
    with peakline.track(*arguments, ops=ops) as run:
        for _ in range(steps):
            workload.step()
        torch.cuda.synchronize()
    peak = run.peak("cuda:0")
    truth = torch.cuda.max_memory_allocated()
    reserved = torch.cuda.max_memory_reserved()
    assert peak.bytes == truth, f"recorded {peak.bytes}, allocator {truth}; {run.warnings}"
    assert sum(peak.by_category.values()) == truth
    assert peak.reserved == reserved, f"recorded {peak.reserved}, allocator {reserved}"
    assert len(run.steps) == steps
    assert run.warnings == [], run.warnings
    return dict(peak=truth, reserved=reserved, **peak.by_category)


def test_recorded_peak_is_the_allocators_from_the_first_step_on() -> None:
    for make in WORKLOADS.values():
        fresh()
        workload = make()
        check(workload)
        check(workload)
        del workload


def test_peak_is_exact_without_being_told_the_model() -> None:
    check(WORKLOADS["transformer"](), known=False)


def test_peak_is_exact_while_the_profiler_runs() -> None:
    workload = WORKLOADS["convolutions"]()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True):
        check(workload)
    torch.cuda.reset_peak_memory_stats()
    with peakline.track(workload.model, workload.opt) as run:
        workload.step()
        with torch.profiler.profile(activities=activities, profile_memory=True):
            workload.step()
        workload.step()
    assert run.peak("cuda:0").bytes == torch.cuda.max_memory_allocated()


def test_other_python_threads_are_seen() -> None:
    kept: list[torch.Tensor] = []

    def work() -> None:
        for size in (1000, 3_000_000, 11_000_000, 77_777_777):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        del kept[1]

    torch.empty(1, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    with peakline.track() as run:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.empty(2_500_000, device="cuda")
    assert run.peak("cuda:0").bytes == torch.cuda.max_memory_allocated()
    assert run.warnings == []


def test_tracking_may_begin_before_cuda_does() -> None:
    script = """
        import torch, peakline
        with peakline.track() as run:
            x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
            (x @ x).sum().backward()
        assert run.peak("cuda:0").bytes == torch.cuda.max_memory_allocated(), run.warnings
        assert run.peak("cuda:0").reserved == torch.cuda.max_memory_reserved()
        assert run.warnings == [], run.warnings
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_memory_from_before_counts_and_its_free_is_seen() -> None:
    before = torch.empty(50_000_000, dtype=torch.uint8, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    with peakline.track() as run:
        kept = torch.empty(1_000_000, dtype=torch.uint8, device="cuda")
        del before
        other = torch.empty(60_000_000, dtype=torch.uint8, device="cuda")
    assert run.peak("cuda:0").bytes == torch.cuda.max_memory_allocated()
    assert run.warnings == []
    del kept, other


if __name__ == "__main__":
    sys.exit(check_file_of_workloads(check))
