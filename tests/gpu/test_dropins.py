"""On a real GPU the drop-in trackers agree with the caching allocator to the byte.

Run by pytest, by tools/run_plain_tests.py, or alone with a file of workloads, which prints the peak
and the cost of each:  python tests/gpu/test_dropins.py FILE [NAME…]
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import sys
import time
from typing import Any

import torch
from gpu_support import check_file_of_workloads
from torch import nn
from torch.utils.checkpoint import checkpoint

from peakline.mem_tracker import MemTracker
from peakline.memory_tracker import BYTES_PER_MB, MemoryTracker


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, width: int, checkpointing: bool | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(4))
        self.reentrant = checkpointing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.reentrant is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Training:
    """`checkpointing`: None for none, else whether it is reentrant."""

    def __init__(self, width: int = 500, checkpointing: bool | None = None) -> None:
        with torch.device("cuda"):
            self.model: nn.Module = Stack(width, checkpointing)
            self.x = torch.randn(16, 33, width, requires_grad=True)
        self.opt = torch.optim.Adam(self.model.parameters(), foreach=True)

    def step(self) -> None:
        self.model(self.x).sum().backward()
        self.opt.step()
        self.opt.zero_grad()


def rounded(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else -(-tensor.untyped_storage().nbytes() // 512) * 512


def check_peak(workload: Any, steps: int = 3) -> int:
    """The tracker's peak is the allocator's, less what was there before and was not given."""
    gc.collect()
    device = torch.device("cuda", torch.cuda.current_device())
    tracker = MemTracker()
    tracker.track_external(workload.model, workload.opt)
    with tracker:
        known = tracker.get_tracker_snapshot().get(device, {"Total": 0})["Total"]
        others = torch.cuda.memory_allocated() - known
        torch.cuda.reset_peak_memory_stats()
        for _ in range(steps):
            workload.step()
        now = tracker.get_tracker_snapshot()[device]["Total"]
        assert now == torch.cuda.memory_allocated() - others, (now, torch.cuda.memory_allocated())
    peak = tracker.get_tracker_snapshot("peak")[device]
    real = torch.cuda.max_memory_allocated() - others
    assert peak["Total"] == real, (peak, real)
    assert peak["Total"] == sum(size for key, size in peak.items() if key != "Total")
    return real


def test_peak_is_the_allocators() -> None:
    check_peak(Training())


def test_peak_is_the_allocators_with_checkpointing() -> None:
    check_peak(Training(checkpointing=False))


def test_peak_is_the_allocators_with_reentrant_checkpointing() -> None:
    check_peak(Training(checkpointing=True))


def test_parameters_gradients_and_states_are_exact() -> None:
    training = Training()
    parameters = list(training.model.parameters())
    device = training.x.device
    with MemTracker() as tracker:
        for _ in range(2):
            training.model(training.x).sum().backward()
            sizes = tracker.get_tracker_snapshot()[device]
            assert sizes["Parameter"] == sum(map(rounded, parameters))
            assert sizes["Gradient"] == sum(rounded(p.grad) for p in parameters)
            training.opt.step()
            sizes = tracker.get_tracker_snapshot()[device]
            states = [s for state in training.opt.state.values() for s in state.values()]
            assert sizes["Optstate"] == sum(rounded(s) for s in states if s.is_cuda)
            training.opt.zero_grad()
            assert tracker.get_tracker_snapshot()[device]["Gradient"] == 0


def test_library_workspaces_are_other() -> None:
    a = torch.randn(512, 512, device="cuda")
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    with MemTracker() as tracker:
        out = a @ a
        sizes = tracker.get_tracker_snapshot()[a.device]
    assert sizes["Activation"] == rounded(out)
    assert sizes["Other"] == sizes["Total"] - sizes["Activation"] > 0


def test_recomputed_memory_is_activation() -> None:
    training = Training(checkpointing=False)
    seen = []
    with MemTracker() as tracker:
        # Before its last part: recomputing stops as soon as it has what backward needs.
        def note(module: Any, args: Any) -> None:
            if tracker._mod_tracker.is_bw:
                seen.append(tracker.get_tracker_snapshot()[args[0].device])

        last: Any = training.model.layers[-1]  # type: ignore[index]
        last.down.register_forward_pre_hook(note)
        loss = training.model(training.x).sum()
        before = tracker.get_tracker_snapshot()[loss.device]
        loss.backward()
    wide = training.x[..., :1].numel() * last.up.out_features * 4
    assert seen[0]["Activation"] - before["Activation"] >= 2 * wide


def test_operator_rows_are_what_torch_says() -> None:
    training = Training(64)
    tracker = MemoryTracker()
    tracker.start_monitor(training.model)
    training.step()
    kept = torch.ones(1 << 20, device="cuda")
    stats = torch.cuda.memory_stats()
    tracker.stop()
    last = tracker._op_index - 1
    for levels, kind in (
        (tracker.memories_allocated, "allocated"),
        (tracker.memories_active, "active"),
        (tracker.memories_reserved, "reserved"),
    ):
        assert levels[last][1] == stats[f"{kind}_bytes.all.current"] / BYTES_PER_MB
    names = [name for name, _ in tracker.memories_allocated.values()]
    assert "layers.0.up.forward.addmm.default_0" in names
    assert any(name.startswith("layers.0.up.backward.mm") for name in names)
    assert kept.nbytes == 4 * BYTES_PER_MB


def timed(workload: Any) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    workload.step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def cost(workload: Any, pairs: int = 7) -> tuple[float, float]:
    """Seconds of a bare step, and the median ratio of a tracked one to it, in turns."""
    tracker = MemTracker()
    tracker.track_external(workload.model, workload.opt)
    bare, ratios = [], []
    for _ in range(pairs):
        for context in (contextlib.nullcontext(), tracker):
            with context:
                workload.step()
                seconds = statistics.median(timed(workload) for _ in range(3))
            if context is tracker:
                ratios.append(seconds / bare[-1])
            else:
                bare.append(seconds)
    return statistics.median(bare), statistics.median(ratios)


def peak_and_cost(workload: Any) -> str:
    peak = check_peak(workload)
    bare, ratio = cost(workload)
    return f"peak {peak / 2**20:.1f} MiB, step {bare * 1e3:.1f} ms, tracked {ratio:.2f}x"


if __name__ == "__main__":
    sys.exit(check_file_of_workloads(peak_and_cost))
