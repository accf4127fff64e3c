"""Memory after every operator: a drop-in for torch.distributed._tools.memory_tracker."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle

from peakline import _new_file
from peakline._C import OpLog
from peakline._dropin.grad_hooks import GradHooks
from peakline._dropin.stats_file import Levels, read_stats, write_stats
from peakline._dropin.tables import table
from peakline._dropin.trace_chart import chart, page
from peakline._dropin.trees import grad_tensors_in

__all__ = ["BYTES_PER_MB", "MemoryProfileDispatchMode", "MemoryTracker"]

BYTES_PER_MB = 1024 * 1024.0
_NO_MODULE = "(outside modules)"


class MemoryProfileDispatchMode(TorchDispatchMode):
    """While entered, the tracker's operators are logged, in C++: no dispatch mode is pushed."""

    def __init__(self, memory_tracker: MemoryTracker) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory_tracker = memory_tracker

    def __enter__(self) -> MemoryProfileDispatchMode:
        self.memory_tracker._start_log()
        return self

    def __exit__(self, *args: Any) -> None:
        self.memory_tracker._stop_log()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = ..., kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs one operator and records it; for callers of upstream's way."""
        result = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.detach.default:
            tracker = self.memory_tracker
            tracker._record_memory_stats(
                tracker._next_name(tracker._cur_module_name, func.__name__)
            )
        return result


class MemoryTracker:
    """Collects the memory allocated, active and reserved after each operator, in MB.

    On an NVIDIA GPU the numbers are the caching allocator's; on the CPU they are the bytes of
    tensors made since `start_monitor`. Operators are named `{module}.forward.{op}_{n}` and
    `{module}.backward.{op}_{n}`; any number of iterations may run.

        tracker = MemoryTracker()
        tracker.start_monitor(net)
        net(x).sum().backward()
        tracker.stop()
        tracker.summary()
        tracker.show_traces()
    """

    def __init__(self) -> None:
        self._hooks: list[RemovableHandle] = []
        self._names: dict[str, int] = defaultdict(int)
        self._levels: dict[str, Levels] = {
            key: _empty() for key in ("allocated", "active", "reserved")
        }
        self._markers: dict[str, int] = defaultdict(int)
        self._module_name = ""
        self._callers: list[str] = []  # names to go back to, of the modules being called
        self._grad_hooks = GradHooks()
        self._count = 0
        self._num_alloc_retries = 0
        self._device_module = torch.get_device_module()
        self._log: OpLog | None = None
        self.profile_mode: MemoryProfileDispatchMode | None = None

    # What the log has so far, in upstream's form

    def _flush(self) -> None:
        if self._log is None:
            return
        for prefix, op, moment, *sizes in self._log.take():
            if moment == "backward" and prefix.endswith(".forward"):  # the loss, before any module
                prefix = prefix.removesuffix(".forward") + ".backward"
            elif moment == "outside" and prefix.endswith(".backward"):  # after the last module
                prefix = ""
            self._add(self._next_name(prefix, op), sizes)

    def _next_name(self, prefix: str, op: str) -> str:
        number = self._names[op]
        self._names[op] = number + 1
        return f"{prefix}.{op}_{number}"

    def _add(self, name: str, sizes: Sequence[int]) -> None:
        for levels, size in zip(self._levels.values(), sizes, strict=True):
            levels[self._count] = (name, size / BYTES_PER_MB)
        self._count += 1

    @property
    def memories_allocated(self) -> Levels:
        """By the number of the operator: its name, and the MB allocated after it."""
        self._flush()
        return self._levels["allocated"]

    @memories_allocated.setter
    def memories_allocated(self, levels: Levels) -> None:
        self._levels["allocated"] = levels

    @property
    def memories_active(self) -> Levels:
        """As `memories_allocated`, with blocks that wait for another stream."""
        self._flush()
        return self._levels["active"]

    @memories_active.setter
    def memories_active(self, levels: Levels) -> None:
        self._levels["active"] = levels

    @property
    def memories_reserved(self) -> Levels:
        """As `memories_allocated`, for what the allocator holds from the device."""
        self._flush()
        return self._levels["reserved"]

    @memories_reserved.setter
    def memories_reserved(self, levels: Levels) -> None:
        self._levels["reserved"] = levels

    @property
    def _operator_names(self) -> dict[str, int]:
        self._flush()
        return self._names

    @_operator_names.setter
    def _operator_names(self, names: dict[str, int]) -> None:
        self._names = names

    @property
    def _op_index(self) -> int:
        self._flush()
        return self._count

    @_op_index.setter
    def _op_index(self, count: int) -> None:
        self._count = count

    @property
    def _cur_module_name(self) -> str:
        return self._module_name

    @_cur_module_name.setter
    def _cur_module_name(self, name: str) -> None:
        self._module_name = name
        if self._log is not None:
            self._log.set_prefix(name)

    # Monitoring

    def start_monitor(self, root_module: nn.Module) -> None:
        """Forgets what was logged, and begins to log what runs, by `root_module`'s modules."""
        if self.profile_mode is not None:
            raise AssertionError("this MemoryTracker is already monitoring; call stop() first")
        self._clear_state()
        profile_mode = MemoryProfileDispatchMode(self)
        profile_mode.__enter__()
        self.profile_mode = profile_mode
        try:
            self._hook_modules(root_module)
            self._hook_optimizers()
        except BaseException:
            self.stop()
            raise
        empty_cache = getattr(self._device_module, "empty_cache", None)
        if empty_cache is not None:
            empty_cache()

    def _hook_modules(self, root_module: nn.Module) -> None:
        for name, module in root_module.named_modules():
            module._memory_tracker_is_root = module is root_module
            # These modules take no hooks.
            if ".fused_proxy_grouped_embedding_bag" not in name:
                self._hook_module(name, module)

    def stop(self) -> None:
        """Ends monitoring, and takes away every hook."""
        if self.profile_mode is None:
            raise AssertionError("this MemoryTracker is not monitoring; call start_monitor() first")
        self._num_alloc_retries = self._device_stats().get("num_alloc_retries", 0)
        for handle in self._hooks:
            handle.remove()
        self._hooks.clear()
        self._grad_hooks.clear_leaves()
        self.profile_mode.__exit__(None, None, None)
        self.profile_mode = None

    def _start_log(self) -> None:
        log = _open_log(self._device_stats)
        log.set_prefix(self._module_name)
        log.start()
        self._log = log

    def _stop_log(self) -> None:
        if self._log is not None:
            self._log.stop()
            self._flush()
            self._log = None

    def _device_stats(self) -> dict[str, int]:
        memory_stats = getattr(self._device_module, "memory_stats", None)
        if memory_stats is None or not torch.accelerator.is_available():
            return {}
        return dict(memory_stats())

    def _hook_module(self, name: str, module: nn.Module) -> None:
        self._hooks += [
            module.register_forward_pre_hook(self._create_pre_forward_hook(name)),
            module.register_forward_hook(self._create_post_forward_hook(name), always_call=True),
        ]

    def _hook_optimizers(self) -> None:
        before: list[str] = []

        def pre_step(*args: Any) -> None:
            before.append(self._cur_module_name)
            self._cur_module_name = "Optimizer.step"

        def post_step(*args: Any) -> None:
            self._cur_module_name = before.pop() if before else self._cur_module_name

        self._hooks += [
            register_optimizer_step_pre_hook(pre_step),
            register_optimizer_step_post_hook(post_step),
        ]

    def _create_pre_forward_hook(self, name: str) -> Callable[..., None]:
        """Names what follows `{name}.forward`; at the root also sets the marker fw_start."""

        def _pre_forward_hook(module: nn.Module, inputs: Any) -> None:
            caller = self._cur_module_name
            self._callers.append(caller)
            self._cur_module_name = f"{name}.forward"
            if getattr(module, "_memory_tracker_is_root", False):
                self._add_marker("fw_start")
                self._grad_hooks.clear_leaves()
            tensors = grad_tensors_in(inputs)
            if tensors:
                self._grad_hooks.on_all(tensors, self._create_leave_hook(name, caller))

        return _pre_forward_hook

    def _create_post_forward_hook(self, name: str) -> Callable[..., None]:
        """Gives the caller its name back; at the root sets the marker fw_bw_boundary."""

        def _post_forward_hook(module: nn.Module, inputs: Any, outputs: Any) -> None:
            if getattr(module, "_memory_tracker_is_root", False):
                self._add_marker("fw_bw_boundary")
                self._callers.clear()
            elif self._callers:
                self._cur_module_name = self._callers.pop()
            tensors = grad_tensors_in(outputs)
            if tensors:
                enter = self._create_backward_hook(name)
                self._grad_hooks.on_any(tensors, lambda grad: enter(module, None, grad))

        return _post_forward_hook

    def _create_backward_hook(self, name: str) -> Callable[..., None]:
        """Names what follows `{name}.backward`."""

        def _backward_hook(module: nn.Module, grad_input: Any, grad_output: Any) -> None:
            # A parent that returns its child's output is told after the child, and must not win.
            if self.profile_mode is not None and not self._in_backward_of(name, strictly=True):
                self._cur_module_name = f"{name}.backward"

        return _backward_hook

    def _create_leave_hook(self, name: str, caller: str) -> Callable[..., None]:
        """When a module's backward is done, what follows is its caller's."""

        def leave(grads: Any) -> None:
            if self.profile_mode is None or not caller.endswith(".forward"):
                return
            if self._in_backward_of(name):
                self._cur_module_name = caller.removesuffix(".forward") + ".backward"

        return leave

    def _in_backward_of(self, name: str, strictly: bool = False) -> bool:
        """Whether the module whose backward runs is `name` or lies below it."""
        running, found, rest = self._cur_module_name.rpartition(".backward")
        if not found or rest:
            return False
        return (not strictly and running == name) or _is_below(running, name)

    def _record_memory_stats(self, fn_name: str) -> None:
        """Adds a row for an operator that has just run."""
        self._flush()
        log = self._log or _open_log(self._device_stats)
        self._add(fn_name, log.levels())

    def _add_marker(self, marker_name: str) -> None:
        self._markers[marker_name] = len(self.memories_allocated)

    def _clear_state(self) -> None:
        self._names.clear()
        for levels in self._levels.values():
            levels.clear()
        self._markers.clear()
        self._callers.clear()
        self._cur_module_name = ""
        self._count = 0
        self._num_alloc_retries = 0

    # Answers

    def _growth(self) -> dict[str, float]:
        """By operator name, how many MB more were allocated after it than before."""
        grown: dict[str, float] = defaultdict(float)
        levels = self.memories_allocated
        before = levels[0][1] if 0 in levels else 0.0
        for index in range(1, self._op_index):
            name, now = levels[index]
            grown[name] = now - before
            before = now
        return grown

    def top_activation_ops(self, top: int = 20) -> list[tuple[str, float]]:
        """The forward operators that leave the most memory behind, with their MB."""
        forward = [(name, size) for name, size in self._growth().items() if ".forward." in name]
        return sorted(forward, key=operator.itemgetter(1), reverse=True)[:top]

    def module_totals(self) -> dict[str, dict[str, float]]:
        """By module name, the MB its own operators added in "forward" and in "backward"."""
        totals: dict[str, dict[str, float]] = {}
        for name, size in self._growth().items():
            module, way = _split_name(name)
            row = totals.setdefault(module, {"forward": 0.0, "backward": 0.0})
            row[way] += size
        return totals

    def summary(self, top: int = 20) -> None:
        """Prints the operators that add the most memory, then activations and modules."""
        grown = sorted(self._growth().items(), key=operator.itemgetter(1), reverse=True)
        print("------------------------------------------------")
        print(f"The number of alloc retries are: {self._num_alloc_retries}")
        print(f"Top {top} ops that generates memory are:")
        for name, size in grown[:top]:
            print(f"{name}: {size}MB")
        print("------------------------------------------------")
        activations = [row for row in self.top_activation_ops(top) if row[1] > 0]
        if activations:
            print(f"Top {top} ops that leave activations behind:")
            print(table(["Operator", "MB"], [[name, f"{size:.3f}"] for name, size in activations]))
        modules = sorted(self.module_totals().items(), key=lambda m: -m[1]["forward"])[:top]
        if modules:
            rows = [[name, *(f"{mb[way]:.3f}" for way in mb)] for name, mb in modules]
            print(f"Top {top} modules by what their own ops add:")
            print(table(["Module", "Forward MB", "Backward MB"], rows))

    def show_traces(self, path: str = "", output: str = "memory_traces.html") -> str:
        """Draws the three lines over operator calls into `output`, .html or .svg; returns its name.

        With `path`, statistics saved there are loaded first.
        """
        if path != "":
            self.load(path)
        lines = {
            f"{kind}_memory": [size for _, size in levels.values()]
            for kind, levels in (
                ("allocated", self.memories_allocated),
                ("active", self.memories_active),
                ("reserved", self.memories_reserved),
            )
        }
        together = chart("Memory after each operator", lines, self._markers)
        alone = [chart(name, {name: values}, self._markers) for name, values in lines.items()]
        svg_only = output.endswith(".svg")
        text = together if svg_only else page("Memory traces", [together, *alone])
        _new_file.write_text(output, text)
        return output

    def save_stats(self, path: str) -> None:
        """Writes a pickle that upstream's `load` reads too, or JSON where `path` ends in .json."""
        stats = {
            "memories_allocated": self.memories_allocated,
            "memories_active": self.memories_active,
            "memories_reserved": self.memories_reserved,
            "markers": self._markers,
            "num_alloc_retries": self._num_alloc_retries,
        }
        write_stats(path, stats)

    def load(self, path: str) -> None:
        """Reads what `save_stats`, or upstream's, wrote. Runs nothing that the file asks for."""
        stats = read_stats(path)
        self.memories_allocated = stats["memories_allocated"]
        self.memories_active = stats["memories_active"]
        self.memories_reserved = stats["memories_reserved"]
        self._markers = stats["markers"]
        self._num_alloc_retries = stats["num_alloc_retries"]
        self._op_index = len(self._levels["allocated"])


def _is_below(name: str, parent: str) -> bool:
    return name != parent and (parent == "" or name.startswith(f"{parent}."))


def _empty() -> Levels:
    return defaultdict()


def _split_name(name: str) -> tuple[str, str]:
    """`a.b.forward.mm.default_3` is module a.b, forward."""
    for way in ("forward", "backward"):
        module, found, _ = name.partition(f".{way}.")
        if found:
            return module or "(root)", way
    return _NO_MODULE, "forward"


def _open_log(device_stats: Callable[[], dict[str, int]]) -> OpLog:
    """A log that reads the allocator in use: in C++ where it is torch's, else by Python."""
    if not torch.accelerator.is_available():
        return OpLog(None)
    device = torch.accelerator.current_accelerator()
    try:
        return OpLog(str(device.type if device is not None else "cuda"))
    except ValueError:
        pass

    def read() -> tuple[int, int, int]:
        stats = device_stats()
        return (
            stats.get("allocated_bytes.all.current", 0),
            stats.get("active_bytes.all.current", 0),
            stats.get("reserved_bytes.all.current", 0),
        )

    return OpLog(read)
