"""Kernels that Inductor writes: never built, never launched."""

from __future__ import annotations

from typing import Any

from peakline._imports import Action
from peakline._patches import Patches
from peakline._virtual_cuda._compiled._benchmarks import Benchmarks
from peakline._virtual_cuda._compiled._moved import bytes_of, iterations
from peakline._virtual_cuda._compiled._scratch import NO_SCRATCH, scratch_of


def actions(patches: Patches, benchmarks: Benchmarks) -> dict[str, Action]:
    def precompile(self: Any, *args: Any, **kwargs: Any) -> None:
        """All configurations: at its first call the kernel is tuned, which takes memory. From its
        second run on a program finds the best one in Inductor's cache on disk, and takes less."""
        if not self.launchers:
            self.launchers = [Launcher(self, config, benchmarks) for config in self.configs]

    def replace_building(module: Any) -> None:
        tuner = module.CachingAutotuner
        patches.set(tuner, "precompile", precompile)
        patches.set(tuner, "coordinate_descent_tuning", lambda self, launcher, *a, **k: launcher)
        patches.set_where_present(
            tuner, "_combo_sequential_autotune", lambda self, launcher, *a, **k: launcher
        )

    def leave_driver(module: Any) -> None:
        patches.set(module, "set_driver_to_gpu", lambda: None)

    return {
        "torch._inductor.runtime.triton_heuristics": replace_building,
        "torch._inductor.runtime.triton_helpers": leave_driver,
    }


class Launcher:
    """What a built kernel would be called through."""

    store_cubin = False
    cache_hash = ""
    n_regs = 0
    n_spills = 0
    shared = 0

    def __init__(self, tuner: Any, config: Any, benchmarks: Benchmarks) -> None:
        self.config = config
        self._benchmarks = benchmarks
        built = lambda: tuner._precompile_config(config).kernel  # noqa: E731
        self._scratch = scratch_of(tuner.fn, built)
        self._grid = tuner._interpret_args_grid
        self._names = tuner.fn.arg_names
        self._iterations = iterations(tuner)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        memory = None
        if self._scratch != NO_SCRATCH:
            memory = self._scratch.allocated(self._grid(args, self.config)[1])
        self._benchmarks.launch(
            lambda: bytes_of(zip(self._names, args, strict=False), self._iterations)
        )
        del memory
