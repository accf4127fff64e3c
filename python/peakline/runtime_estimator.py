"""How long a model takes: a drop-in for torch.distributed._tools.runtime_estimator."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar, Self

from torch._guards import active_fake_mode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from peakline import _C
from peakline._dropin.op_times import Benchmark, CostModel
from peakline._dropin.roofline import Roofline
from peakline.mod_tracker import ModTracker

__all__ = ["RuntimeEstimator"]

BENCHMARK = "operator-level-benchmark"
COST_MODEL = "operator-level-cost-model"
KERNEL_MODEL = "kernel-level-cost-model"


def check_place(who: str) -> Any:
    """The FakeTensorMode that is on, or None on a virtual GPU; anything else would compute."""
    mode = active_fake_mode()
    if mode is None and not _C.vgpu.active():
        raise AssertionError(
            f"No FakeTensorMode found: use {who} inside FakeTensorMode or a peakline.virtual_gpu()"
        )
    return mode


class RuntimeEstimator(TorchDispatchMode):
    """Estimates GPU time in milliseconds, op by op, in all and by module.

    `estimator(estimate_mode_type=...)` is the context manager: "operator-level-cost-model" is
    upstream's roofline, "kernel-level-cost-model" asks peakline's model of the GPU's kernels (so
    does an estimator that is not called), "operator-level-benchmark" runs every op on the GPU that
    is there.
    Used inside FakeTensorMode or a virtual GPU; `gpu` names the profile ("a100", "my.toml"), by
    default the GPU that is there, virtual or real, else an H200. Communication is not counted:
    `run.timing()` of a virtual GPU has it.

    `mod_runtimes[name]["fw" | "bw"]`: time of a module with all below it;
    `mod_{fw,bw}_{pre,post}_order`: names as the modules were entered and left; `total_runtime`.
    """

    _no_fallback_kernel: ClassVar[set[Any]] = set()
    fake_mode: ClassVar[Any] = None
    _roofline: ClassVar[Roofline | None] = None
    _model: ClassVar[CostModel | None] = None
    _runner: ClassVar[Benchmark | None] = None

    def __init__(self, gpu: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._gpu = gpu
        self._estimate: Any = None
        self._estimate_mode_type = ""
        self._mod_tracker = ModTracker()
        self.mod_runtimes: dict[str, dict[str, float]] = _no_runtimes()
        self.mod_fw_pre_order: list[str] = []
        self.mod_bw_pre_order: list[str] = []
        self.mod_fw_post_order: list[str] = []
        self.mod_bw_post_order: list[str] = []
        self.total_runtime = 0.0

    @classmethod
    def _maybe_run_and_benchmark_fallback_kernel(
        cls, func: Any, args: Any, kwargs: Any, orig_not_implemented_exception: Any
    ) -> tuple[Any, float]:
        return cls._benchmark_estimate(func, args, kwargs)

    @classmethod
    def _benchmark_estimate(cls, func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        """The op's result, and its time by running it."""
        if RuntimeEstimator._runner is None:
            RuntimeEstimator._runner = Benchmark()
        out = func(*args, **(kwargs or {}))
        ms = RuntimeEstimator._runner.time(func, args, kwargs or {}, out)
        cls._no_fallback_kernel |= RuntimeEstimator._runner.failed
        return out, ms

    @classmethod
    def _roofline_estimate(cls, func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        """The op's result, and its time by upstream's roofline."""
        if RuntimeEstimator._roofline is None:
            RuntimeEstimator._roofline = Roofline()
        out = func(*args, **(kwargs or {}))
        return out, RuntimeEstimator._roofline.time(func, args, kwargs or {}, out)

    @classmethod
    def _kernel_estimate(cls, func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        """The op's result, and its time by peakline's model of kernels."""
        if RuntimeEstimator._model is None:
            RuntimeEstimator._model = CostModel()
        out = func(*args, **(kwargs or {}))
        return out, RuntimeEstimator._model.time(func, args, kwargs or {}, out)

    @classmethod
    def _begin(cls, gpu: str | None, mode_type: str) -> None:
        RuntimeEstimator._roofline = Roofline(gpu)
        RuntimeEstimator._model = CostModel(gpu)
        RuntimeEstimator._runner = Benchmark() if mode_type == BENCHMARK else None

    @classmethod
    def _estimate_of(cls, mode_type: str) -> Any:
        modes = {
            BENCHMARK: RuntimeEstimator._benchmark_estimate,
            COST_MODEL: RuntimeEstimator._roofline_estimate,
            KERNEL_MODEL: RuntimeEstimator._kernel_estimate,
        }
        if mode_type not in modes:
            known = ", ".join(f"'{mode}'" for mode in modes)
            raise NotImplementedError(
                f"estimate_mode_type '{mode_type}' is not known; known are {known}"
            )
        return modes[mode_type]

    def display_modulewise_stats(self, depth: int = 2) -> None:
        """Prints the orders and the runtimes of modules down to `depth` levels."""

        def shown(names: Any) -> list[str]:
            return [name for name in names if name is not None and name.count(".") < depth]

        print("Pre-Forward Execution Order: ")
        for name in shown(self.mod_fw_pre_order):
            print(name)
        print("Pre-Backward Execution Order: ")
        for name in shown(self.mod_bw_pre_order):
            print(name)
        for name in shown(self.mod_runtimes):
            times = self.mod_runtimes[name]
            print(f"{name} fw: {times.get('fw', 0.0):.3f}ms bw: {times.get('bw', 0.0):.3f}ms")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(t) for t in types):
            return NotImplemented  # a DTensor's own ops come next, and those are counted
        out, ms = self._estimate(func, args, kwargs)
        way = "bw" if self._mod_tracker.is_bw else "fw"
        for name in self._mod_tracker.parents:
            self.mod_runtimes[name][way] += ms
        self.total_runtime += ms
        return out

    def __call__(self, estimate_mode_type: str) -> Self:
        self._estimate = self._estimate_of(estimate_mode_type)
        self._estimate_mode_type = estimate_mode_type
        return self

    def __enter__(self) -> Self:
        if self._estimate is None:
            self(KERNEL_MODEL)
        RuntimeEstimator.fake_mode = check_place("RuntimeEstimator")
        self._begin(self._gpu, self._estimate_mode_type)
        self.total_runtime = 0.0
        self.mod_runtimes = _no_runtimes()
        known = self._mod_tracker.get_known_fqn
        orders = [
            self.mod_fw_pre_order,
            self.mod_fw_post_order,
            self.mod_bw_pre_order,
            self.mod_bw_post_order,
        ]
        for order in orders:
            order.clear()
        hooks = [lambda module, *_, order=order: order.append(known(module)) for order in orders]
        self._mod_tracker.register_user_hooks(*hooks)
        self._mod_tracker.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *args: Any) -> None:
        print(f"Estimated ({self._estimate_mode_type}) total_time: {self.total_runtime:.3f} ms")
        if self._no_fallback_kernel:
            print("no_fallback_kernel: ", list(self._no_fallback_kernel))
        super().__exit__(*args)  # type: ignore[no-untyped-call]
        self._mod_tracker.clear_user_hooks()
        self._mod_tracker.__exit__(*args)


def _no_runtimes() -> dict[str, dict[str, float]]:
    return defaultdict(lambda: defaultdict(float))
