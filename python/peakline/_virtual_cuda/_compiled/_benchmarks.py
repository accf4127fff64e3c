"""Where Inductor and Triton decide by measuring: a stated rule answers.

What is measured runs on the virtual GPU, so its buffers count. Its time is that of its ops by the
rule in `_roofline.py`. A Triton kernel takes longer than anything else, and all of them the same:
of configurations the first is taken, and of a library's kernel and a generated one the library's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from peakline._imports import Action
from peakline._patches import Patches
from peakline._virtual_cuda._compiled._clocks import clocks_of
from peakline._virtual_cuda._compiled._roofline import Roofline
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes

TRITON_FLUSH = 256 * 2**20  # bytes that Triton's own benchmark clears caches with
_KERNEL_MS = 1000.0
_NOTE = (
    "torch.compile or Triton measured to decide (padded products, tuned kernels): a rule answered "
    "in place of the GPU, by bytes, FLOPs and alignment; kernels have their first configuration"
)


class Benchmarks:
    def __init__(self, notes: Notes, engine: Engine) -> None:
        self._notes = notes
        self._engine = engine
        self._facts = engine.properties(0)
        self._clocks = clocks_of(self._facts["name"])
        self._roofline = Roofline(self._facts["multi_processor_count"], self._clocks)
        self._thread = threading.local()
        self.count = 0  # how often something was measured

    def actions(self, patches: Patches) -> dict[str, Action]:
        def in_inductor(module: Any) -> None:
            for name in ("TritonBenchmarker", "InductorBenchmarker", "TorchProfilerBenchmarker"):
                owner = vars(module).get(name)
                if owner is not None and "benchmark_gpu" in vars(owner):
                    own = name != "TritonBenchmarker"
                    flush = self._facts["L2_cache_size"] if own else TRITON_FLUSH
                    patches.set(owner, "benchmark_gpu", self._benchmark_gpu(flush))

        def in_triton(module: Any) -> None:
            patches.set(module, "do_bench", self.do_bench)
            patches.set(module, "do_bench_cudagraph", self.do_bench)
            patches.set(module, "nvsmi", lambda fields: [self._field(name) for name in fields])

        def in_padding(module: Any) -> None:
            """What one estimate found out, the next one finds out again: its buffers count."""
            known = _Known()
            patches.set(module, "get_pad_cache", lambda: known)
            decide = module._should_pad
            patches.set(module, "_should_pad", getattr(decide, "__wrapped__", decide))

        def in_selection(module: Any) -> None:
            """Its tables would show times that nobody measured."""
            patches.set_where_present(module, "PRINT_AUTOTUNE", False)
            patches.set_where_present(module, "_log_autotune_choices_stats", lambda *args: None)

        return {
            "torch._inductor.runtime.benchmarking": in_inductor,
            "torch._inductor.select_algorithm": in_selection,
            "torch._inductor.fx_passes.pad_mm": in_padding,
            "triton.testing": in_triton,
        }

    def launch(self, bytes_moved: Callable[[], float]) -> None:
        """A kernel would have been launched: it is counted where it is measured, and takes its time
        elsewhere."""
        if getattr(self._thread, "kernels", None) is not None:
            self._thread.kernels += 1
        else:
            self._engine.clock_kernel(bytes_moved())

    def repeated(self) -> None:
        """What an earlier estimate measured counts again."""
        self._notes.put("benchmarks", _NOTE)

    def do_bench(
        self,
        call: Callable[[], Any],
        *args: Any,
        quantiles: Any = None,
        return_mode: str = "mean",
        **kwargs: Any,
    ) -> Any:
        """As triton.testing.do_bench."""
        time = self._measure(call, TRITON_FLUSH)
        if quantiles is not None:
            return time if len(quantiles) == 1 else [time] * len(quantiles)
        return [time] if return_mode == "all" else time

    def _benchmark_gpu(self, flush: int) -> Callable[..., Any]:
        def benchmark_gpu(
            benchmarker: Any,
            call: Callable[[], Any],
            *args: Any,
            return_mode: str = "min",
            **kwargs: Any,
        ) -> Any:
            time = self._measure(call, flush)
            return [time] if return_mode == "all" else time

        return benchmark_gpu

    def _measure(self, call: Callable[[], Any], flush: int) -> float:
        """Milliseconds. In the order of a real measurement: once to warm up, then with a buffer
        beside it that empties the caches."""
        self.repeated()
        self.count += 1
        outer = getattr(self._thread, "kernels", None)
        self._thread.kernels = 0
        try:
            with self._roofline.timed() as time:
                call()
            kernels = self._thread.kernels
            buffer = torch.empty(flush // 4, dtype=torch.int, device="cuda")
            call()
            del buffer
        finally:
            self._thread.kernels = outer
        return float(time.milliseconds + _KERNEL_MS * kernels)

    def _field(self, name: str) -> int:
        known = {
            "clocks.max.sm": self._clocks.sm_mhz,
            "clocks.current.sm": self._clocks.sm_mhz,
            "clocks.max.memory": self._clocks.memory_mhz,
        }
        return known.get(name, 0)


class _Known:
    """As Inductor's cache on disk, for one estimate."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def lookup(self, key: str) -> Any:
        return self._values.get(key)

    def set_value(self, key: str, *, value: Any) -> None:
        self._values[key] = value
