"""Triton on a virtual GPU: a driver that answers, and kernels that are checked and not launched."""

from __future__ import annotations

import importlib
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from peakline._imports import Action
from peakline._patches import Patches
from peakline._virtual_cuda._compiled._benchmarks import TRITON_FLUSH, Benchmarks
from peakline._virtual_cuda._compiled._clocks import clocks_of
from peakline._virtual_cuda._compiled._moved import bytes_of
from peakline._virtual_cuda._compiled._scratch import Scratch, descriptors_made, scratch_of
from peakline._virtual_cuda._engine import Engine

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)


def actions(patches: Patches, engine: Engine, benchmarks: Benchmarks) -> dict[str, Action]:
    def put_driver(runtime: Any) -> None:
        patches.set(runtime.driver, "_active", VirtualDriver(engine, benchmarks))
        allocator = importlib.import_module("triton.runtime._allocation")._allocator
        before = allocator.get()  # Inductor and programs set one
        patches.on_restore(lambda: allocator.set(before))

    def leave_kernels(jit: Any) -> None:
        kernels = _Kernels(benchmarks)
        patches.set(jit.JITFunction, "run", kernels.runner())
        patches.on_restore(kernels.forget)

    return {"triton.runtime": put_driver, "triton.runtime.jit": leave_kernels}


class VirtualDriver:
    """What Triton asks the driver of NVIDIA GPUs."""

    def __init__(self, engine: Engine, benchmarks: Benchmarks) -> None:
        self._engine = engine
        self._benchmarks = benchmarks
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def get_current_target(self) -> Any:
        target = importlib.import_module("triton.backends.compiler").GPUTarget
        facts = self._engine.properties(self.get_current_device())
        return target("cuda", facts["major"] * 10 + facts["minor"], 32)

    def get_current_device(self) -> int:
        return self._engine.current_device()

    def set_current_device(self, device: int) -> None:
        self._engine.exchange_device(device)

    def get_current_stream(self, device: int) -> int:
        return self._engine.current_stream(device)[0]

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        facts = self._engine.properties(device)
        return facts["major"], facts["minor"]

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Any:
        return self._benchmarks.do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(TRITON_FLUSH // 4, dtype=torch.int, device="cuda")

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()

    def is_active(self) -> bool:
        return True

    def map_python_to_cpp_type(self, name: str) -> str:
        return str(importlib.import_module("triton.backends.nvidia.driver").ty_to_cpp(name))

    def assemble_tensormap_to_arg(self, tensormaps: Any, args: Any) -> Any:
        return args

    def _properties(self, device: int) -> dict[str, int]:
        facts = self._engine.properties(device)
        clocks = clocks_of(facts["name"])
        return {
            "max_shared_mem": facts["shared_memory_per_block_optin"],
            "max_num_regs": facts["regs_per_multiprocessor"],
            "multiprocessor_count": facts["multi_processor_count"],
            "warpSize": facts["warp_size"],
            "sm_clock_rate": clocks.sm_mhz * 1000,
            "mem_clock_rate": clocks.memory_mhz * 1000,
            "mem_bus_width": clocks.bus_bits,
        }


class Kernel:
    """What a launch gives back: as much of a built kernel as programs ask for."""

    n_regs = 32
    n_spills = 0
    n_max_threads = 1024

    def __init__(self, name: str) -> None:
        self.name = name
        self.metadata = SimpleNamespace(
            name=name, shared=0, num_warps=4, num_stages=3, num_ctas=1, global_scratch_size=0
        )

    def _init_handles(self) -> None:
        pass

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: None


class Bound(NamedTuple):
    kernel: Any
    arguments: dict[str, Any]
    target: Any
    packed: tuple[Any, ...]  # options, signature, constants, attributes

    @property
    def key(self) -> str:
        return f"{id(self.kernel)} {self.packed}"

    def compiled(self) -> Any:
        options, signature, constants, attributes = self.packed
        source = self.kernel.ASTSource(self.kernel, signature, constants, attributes)
        return self.kernel.compile(source, target=self.target, options=options.__dict__)


class _Met:
    """A kernel that was called."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = weakref.ref(kernel)
        self.describes = descriptors_made(kernel)
        # What Triton derives from arguments when it builds, and not at every launch.
        self.packed: dict[Any, tuple[Any, ...]] = {}


class _Kernels:
    """Kernels that were called, which learned of a device then."""

    def __init__(self, benchmarks: Benchmarks) -> None:
        self._benchmarks = benchmarks
        self._met: dict[int, _Met] = {}
        self._scratch: dict[str, Scratch] = {}  # by what a kernel is compiled for

    def runner(self) -> Any:
        kernels = self

        def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Kernel:
            met = kernels._meet(self)
            for hook in self.pre_run_hooks:
                hook(*args, **kwargs)
            bound = _bind(self, args, kwargs, met.packed)
            if not warmup:
                _check_places(bound.arguments)
                sizes = _checked_grid(self, grid(bound.arguments) if callable(grid) else grid)
                memory = kernels._scratch_of(bound, sizes) if met.describes else None
                kernels._benchmarks.launch(lambda: bytes_of(bound.arguments.items()))
                del memory
            return Kernel(self.__name__)

        return run

    def _meet(self, kernel: Any) -> _Met:
        met = self._met.get(id(kernel))
        if met is None or met.kernel() is not kernel:
            met = self._met[id(kernel)] = _Met(kernel)
        return met

    def _scratch_of(self, bound: Bound, grid: tuple[int, ...]) -> Any:
        """What holds the memory that Triton takes for this launch."""
        if bound.key not in self._scratch:
            self._scratch[bound.key] = scratch_of(bound.kernel, bound.compiled)
        return self._scratch[bound.key].allocated(grid)

    def forget(self) -> None:
        """The next device may be another."""
        for met in self._met.values():
            kernel = met.kernel()
            if kernel is not None:
                kernel.device_caches.clear()


def _bind(kernel: Any, args: Any, kwargs: dict[str, Any], packed: dict[Any, Any]) -> Bound:
    """As Triton does before it builds: raises where an argument is missing or unknown. What it
    does for each build alone is done once, since the Python that runs counts as the program's."""
    device = torch.cuda.current_device()
    *_, target, backend, binder = kernel.device_caches[device]
    bound, specialization, options = binder(*args, **kwargs)
    key = (device, tuple(specialization), str(options))
    if key not in packed:
        packed[key] = kernel._pack_args(backend, kwargs, bound, specialization, options)
    return Bound(kernel, dict(bound), target, packed[key])


def _check_places(arguments: dict[str, Any]) -> None:
    """As Triton's launcher does: the host's memory, unless it is pinned, is out of reach."""
    for index, value in enumerate(arguments.values()):
        on_host = isinstance(value, torch.Tensor) and value.device.type == "cpu"
        if on_host and value.numel() and not value.is_pinned():
            raise ValueError(
                f"Pointer argument (at {index}) cannot be accessed from Triton (cpu tensor?)"
            )


def _checked_grid(kernel: Any, grid: Any) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in grid)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"the grid of Triton kernel {kernel.__name__} has {len(sizes)} dimensions")
    for size, most in zip(sizes, _MOST_BLOCKS, strict=False):
        if size > most:
            raise RuntimeError(
                f"Triton Error [CUDA]: invalid argument: the grid {sizes} of {kernel.__name__} is "
                "larger than a GPU takes"
            )
    return sizes
