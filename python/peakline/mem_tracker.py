"""Memory by category and by module: a drop-in for torch.distributed._tools.mem_tracker."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn, optim
from torch._guards import active_fake_mode
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from peakline._C import MemEngine
from peakline._dropin.mem_stats import (
    _PYTORCH_MIN_ALLOCATE,
    _TOTAL_KEY,
    Snapshot,
    _get_mem_divisor,
    _MemRefType,
    _ModMemStats,
    _ModState,
    _print_snapshot,
    _print_snapshot_tabular,
    _print_state_snapshots,
    _print_state_snapshots_tabular,
    _RefType,
    _rounding_fn,
    _State,
    _UpdateType,
    _WeakRefInfo,
    natural_sort_key,
)
from peakline._dropin.subclasses import SubclassFacts
from peakline._dropin.trees import tensors_in
from peakline._storage_resizes import follow_resizes
from peakline.common_utils import get_untyped_storages
from peakline.mod_tracker import ModTracker

__all__ = ["MemTracker"]

_PRIVATE_NAMES = (_PYTORCH_MIN_ALLOCATE, _get_mem_divisor, _rounding_fn, _State)  # upstream's


class _Stats(Protocol):
    """The part of a module's statistics that frames fill in."""

    local_peak: dict[torch.device, int]
    snapshots: dict[_State, list[Snapshot]]


class _GradHookHandle:
    """Takes away a gradient hook that lives in C++."""

    def __init__(self, engine: MemEngine, param: torch.Tensor, category: int) -> None:
        self._engine = engine
        self._param = weakref.ref(param)
        self._hook = engine.hook_gradient(param, category)

    def remove(self) -> None:
        param = self._param()
        if param is not None:
            self._engine.unhook_gradient(param, self._hook)


class _StorageInfos:
    """What the engine knows of storages, in the form of upstream's dictionary."""

    def __init__(self, engine: MemEngine, reftypes: list[_RefType]) -> None:
        self._engine = engine
        self._reftypes = reftypes

    def get(self, st: torch.UntypedStorage, default: Any = None) -> Any:
        held = self._engine.held(st)
        if held is None:
            return default
        _, category, device = held
        return _WeakRefInfo.create_winfo(st, device, self._reftypes[category])

    def __contains__(self, st: torch.UntypedStorage) -> bool:
        return self._engine.held(st) is not None

    def __getitem__(self, st: torch.UntypedStorage) -> Any:
        found = self.get(st)
        if found is None:
            raise KeyError(st)
        return found


class MemTracker(TorchDispatchMode):
    """Tracks tensor memory inside its context, by device, by category and by module.

    What was made before the context counts once it is given to `track_external`, or is a parameter,
    buffer, gradient or optimizer state of a module that runs. On a real run memory is what the
    allocators hand out, library memory included (as Other); under FakeTensorMode it is what the
    same tensors would take.

    `memory_tracking` gives each module that ran its `_ModMemStats`: weakly keyed, live and free to
    change. A module's lists begin anew each time it is called as the outermost module, so any
    number of iterations may run. Modules are named as in `ModTracker`.

        tracker = MemTracker()
        tracker.track_external(model, optimizer, batch)
        with tracker as mt:
            model(batch).sum().backward()
            optimizer.step()
        mt.display_snapshot("peak", units="MiB")
        mt.display_modulewise_snapshots(depth=2, units="MiB", tabulate=True)

    One thread enters and leaves it; autograd's threads working for that thread are seen too.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory_tracking = WeakIdKeyDictionary()
        self._stats_keys: dict[int, Any] = {}  # by id: a module, and its key there
        self._param_to_grad_hook_handles = WeakIdKeyDictionary()
        self._optimizer_hook_handles: tuple[RemovableHandle, RemovableHandle] | None = None
        self._mod_tracker = ModTracker()
        self._mod_tracker._on_inactive = self._close_frame
        self._ac_mod: weakref.ref[nn.Module] | None = None
        self._orig_resize: Callable[..., Any] = torch.UntypedStorage.resize_
        self._depth = 0
        self._fake_mode_on_entry: Any = None
        # Modules running now, by name: where to write their peak, and the engine's frame.
        self._frames: dict[str, tuple[_Stats, Snapshot, int]] = {}
        self._last_peak: Snapshot = {}
        self._ask = SubclassFacts()
        self._ref_class = _MemRefType

    # What memory is called

    @property
    def _ref_class(self) -> type[_RefType]:
        return self.__ref_class

    @_ref_class.setter
    def _ref_class(self, ref_class: type[_RefType]) -> None:
        """Begins an empty book in the words of `ref_class`, which needs ACT, TEMP and OPT."""
        members = list(ref_class)
        self.__ref_class = ref_class
        self._category = {member: index for index, member in enumerate(members)}
        roles = [
            self._category.get(getattr(ref_class, role, None), -1)  # type: ignore[arg-type]
            for role in ("ACT", "TEMP", "OPT", "OTH")
        ]
        self._engine = MemEngine(members, _TOTAL_KEY, roles, _PYTORCH_MIN_ALLOCATE, self._ask)
        self._WINFO = _StorageInfos(self._engine, members)

    @property
    def _in_opt(self) -> bool:
        return self._engine.optimizing

    @_in_opt.setter
    def _in_opt(self, on: bool) -> None:
        self._engine.optimizing = on

    @property
    def _in_ac(self) -> bool:
        return self._engine.recomputing

    @_in_ac.setter
    def _in_ac(self, on: bool) -> None:
        self._engine.recomputing = on

    # Snapshots

    @property
    def memory_tracking(self) -> WeakIdKeyDictionary:
        """The statistics of each module that ran, up to this moment."""
        for frame in self._frames.values():
            self._write_peak(*frame[:2], self._engine.frame_peak(frame[2]))
        return self._memory_tracking

    @memory_tracking.setter
    def memory_tracking(self, stats: WeakIdKeyDictionary) -> None:
        self._memory_tracking = stats
        self._stats_keys.clear()

    @property
    def _curr_mem_snap(self) -> Snapshot:
        if self._depth == 0:
            self._engine.drop_dead()  # nobody reported what ended since the context was left
        return self._engine.now()

    @property
    def _peak_mem_snap(self) -> Snapshot:
        return self._engine.peak() if self._depth else self._last_peak

    @property
    def _peak_mem(self) -> dict[torch.device, int]:
        return {dev: sizes[_TOTAL_KEY] for dev, sizes in self._peak_mem_snap.items()}

    def get_tracker_snapshot(self, type: str = "current") -> Snapshot:
        """Bytes by device and category, "current" or at the "peak"; `Total` is their sum."""
        if type == "current":
            return self._curr_mem_snap
        if type == "peak":
            return {dev: dict(sizes) for dev, sizes in self._peak_mem_snap.items()}
        raise ValueError(f"unknown snapshot type {type!r}; use 'current' or 'peak'")

    def display_snapshot(
        self, type: str = "current", units: str = "B", tabulate: bool = False
    ) -> None:
        """Prints `get_tracker_snapshot(type)` in B, KiB, MiB or GiB, as lines or as a table."""
        show = _print_snapshot_tabular if tabulate else _print_snapshot
        show(self.get_tracker_snapshot(type), units)

    def display_modulewise_snapshots(
        self, depth: int = 2, units: str = "B", tabulate: bool = False
    ) -> None:
        """Prints the snapshots of each module down to `depth`, as lines or as tables."""
        show = _print_state_snapshots_tabular if tabulate else _print_state_snapshots
        stats = sorted(self.memory_tracking.values(), key=lambda s: natural_sort_key(s.mod_fqn))
        for mod_stats in stats:
            if mod_stats.mod_fqn.count(".") < depth:
                print(f"Module:  {mod_stats.mod_fqn}")
                show(mod_stats.snapshots, units)

    def reset_mod_stats(self) -> None:
        """Forgets what is known of modules."""
        self._memory_tracking.clear()
        self._stats_keys.clear()

    # The book, by upstream's verbs

    def _update_snap(
        self,
        u_type: _UpdateType,
        winfo: _WeakRefInfo,
        old_mem_consumed: int | None = None,
        old_reftype: _RefType | None = None,
    ) -> None:
        category = self._category[winfo.reftype]
        change = winfo.mem_consumed
        if u_type == _UpdateType.DEL:
            change = -change
        elif u_type == _UpdateType.REF:
            if old_reftype is None:
                raise AssertionError("a change of category needs the old one")
            self._engine.adjust(winfo.device, self._category[old_reftype], -change, -change)
        elif u_type == _UpdateType.SIZE:
            if old_mem_consumed is None:
                raise AssertionError("a change of size needs the old one")
            change -= old_mem_consumed
        elif u_type != _UpdateType.ADD:
            raise ValueError(f"unknown update {u_type!r}")
        self._engine.adjust(winfo.device, category, change, change)

    def _update_and_maybe_create_winfos(
        self, t: torch.Tensor, reftype: _RefType, update_existing: bool = False
    ) -> set[_WeakRefInfo]:
        storages = get_untyped_storages(t)
        if update_existing and any(st not in self._WINFO for st in storages):
            raise KeyError("that tensor's storage is not tracked")
        self._engine.label(t, self._category[reftype])
        infos = (self._WINFO.get(st) for st in storages)
        return {info[0] for info in infos if info is not None}

    def _delete_callback(self, winfo: _WeakRefInfo, w_st: weakref.ref[Any]) -> None:
        if winfo.mem_consumed > 0:
            self._update_snap(_UpdateType.DEL, winfo)

    def _track(self, reftype: _RefType, t: torch.Tensor) -> None:
        self._engine.track(t, self._category[reftype])

    def _update_peak_stats(self, peak_state: _State) -> None:
        for frame in self._frames.values():
            self._write_peak(*frame[:2], self._engine.frame_peak(frame[2]))

    def _track_resize(self) -> None:
        engine = self._engine

        def resize_(st: torch.UntypedStorage) -> Callable[[], None]:
            before = engine.before_resize(st)
            return lambda: engine.after_resize(st, before)

        self._orig_resize = torch.UntypedStorage.resize_
        self._forget_resizes = follow_resizes(resize_)

    def _restore_resize(self) -> None:
        self._forget_resizes()

    # Labels

    def _track_module_params_and_buffers(
        self, module: nn.Module, install_grad_hooks: bool = True
    ) -> tuple[int, int]:
        label = self._engine.label
        kinds = _MemRefType
        param_memory = buffer_memory = 0
        for param in module.parameters():
            param_memory += label(param, self._category[kinds.PARAM])
            if param.grad is not None:
                label(param.grad, self._category[kinds.GRAD])
            if install_grad_hooks and param.requires_grad:
                self._install_grad_hook(param)
        for buffer in module.buffers():
            buffer_memory += label(buffer, self._category[kinds.BUFFER])
        return param_memory, buffer_memory

    def _install_grad_hook(self, param: torch.Tensor) -> None:
        if self._param_to_grad_hook_handles.get(param, None) is not None:
            return
        category = self._category[_MemRefType.GRAD]
        self._param_to_grad_hook_handles[param] = (
            _GradHookHandle(self._engine, param, category),
            # The gradient that arrives may be added to an older one, or copied.
            param.register_post_accumulate_grad_hook(self._engine.gradient_labeller(category)),
        )

    def _track_inputs_or_outputs(self, args: Any) -> int:
        return sum(map(self._engine.held_bytes, tensors_in(args)))

    def _track_optimizer_states(self, reftype: _RefType, optimizer: optim.Optimizer) -> None:
        category = self._category[reftype]
        for states in optimizer.state.values():
            for val in states.values():
                if isinstance(val, torch.Tensor):
                    self._engine.label(val, category)

    def track_external(self, *external: nn.Module | optim.Optimizer | torch.Tensor) -> None:
        """Counts modules, optimizers and tensors (or nests of them) made outside the context.

        To be called before entering. Tensors that are nothing else become Other.
        """
        for obj in tree_flatten(external)[0]:
            if isinstance(obj, torch.Tensor):
                self._engine.label(obj, self._category[_MemRefType.OTH])
            elif isinstance(obj, nn.Module):
                self._track_module_params_and_buffers(obj, install_grad_hooks=False)
            elif isinstance(obj, optim.Optimizer):
                self._track_optimizer_states(_MemRefType.OPT, obj)
            elif obj is not None:
                raise TypeError(
                    f"track_external takes modules, optimizers and tensors, not {type(obj)}"
                )

    # Modules

    def _open_frame(self, name: str, stats: _Stats, state: _State, peak_state: _State) -> None:
        self._close_frame(name)
        frame, snapshot = self._engine.open_frame()
        stats.local_peak = {dev: sizes[_TOTAL_KEY] for dev, sizes in snapshot.items()}
        stats.snapshots.setdefault(peak_state, []).append(snapshot)
        at_start = {dev: sizes.copy() for dev, sizes in snapshot.items()}
        stats.snapshots.setdefault(state, []).append(at_start)
        self._frames[name] = (stats, snapshot, frame)

    def _close_frame(self, name: str) -> None:
        frame = self._frames.pop(name, None)
        if frame is not None:
            self._write_peak(*frame[:2], self._engine.close_frame(frame[2]))

    @staticmethod
    def _write_peak(stats: _Stats, snapshot: Snapshot, peak: Snapshot) -> None:
        for dev, sizes in peak.items():
            if stats.local_peak.get(dev, 0) < sizes[_TOTAL_KEY]:
                stats.local_peak[dev] = sizes[_TOTAL_KEY]
                snapshot[dev] = sizes

    # The weak dictionary compares its keys in Python, slowly, unless it meets the very same key.

    def _add_stats(self, module: nn.Module, stats: _ModMemStats) -> None:
        self._memory_tracking[module] = stats
        # The newest key of a dictionary is its last.
        key = next(reversed(self._memory_tracking.data))
        self._stats_keys[id(module)] = (weakref.ref(module), key)

    def _stats_of(self, module: nn.Module) -> _ModMemStats | None:
        met = self._stats_keys.get(id(module))
        if met is None or met[0]() is not module:
            found: _ModMemStats | None = self._memory_tracking.get(module, None)
            return found
        return self._memory_tracking.data.get(met[1])

    def _begin_iteration(self, root: nn.Module) -> None:
        """A known module is called as the outermost one: its lists, and those below, begin anew."""
        for module in root.modules():
            stats = self._stats_of(module)
            if stats is not None:
                stats.snapshots.clear()
        self._track_module_params_and_buffers(root, install_grad_hooks=True)

    def _pre_fw_hook(self, module: nn.Module, inputs: Any) -> None:
        mod_name = self._mod_tracker.get_known_fqn(module)
        if mod_name is None:
            raise AssertionError("a module runs that ModTracker does not know")
        stats = self._stats_of(module)
        if stats is not None and self._mod_tracker.is_bw:
            if self._ac_mod is None:
                self._ac_mod = weakref.ref(module)
                self._in_ac = True
            stats.snapshots.setdefault(_ModState.PRE_FW_AC, []).append(self._engine.now())
            return
        if stats is None:
            stats = _ModMemStats(mod_name)
            stats.parameter_mem, stats.buffer_mem = self._track_module_params_and_buffers(module)
            self._add_stats(module, stats)
        elif self._mod_tracker.parents == {"Global", mod_name}:
            self._begin_iteration(module)
        stats.mod_fqn = mod_name
        stats.input_mem = self._track_inputs_or_outputs(inputs)
        self._open_frame(mod_name, stats, _ModState.PRE_FW, _ModState.PEAK_FW)

    def _post_fw_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        stats = self._stats_of(module)
        if stats is None:  # reset_mod_stats was called while the module ran
            return
        if self._mod_tracker.is_bw:
            state = _ModState.POST_FW_AC
            if self._ac_mod is not None and self._ac_mod() is module:
                self._ac_mod = None
                self._in_ac = False
        else:
            state = _ModState.POST_FW
            stats.output_mem = self._track_inputs_or_outputs(outputs)
        stats.snapshots.setdefault(state, []).append(self._engine.now())

    def _pre_bw_hook(self, module: nn.Module | None, args: Any) -> None:
        self._engine.note_backward()
        if module is None:
            warnings.warn("a module died before its backward: it gets no snapshot", stacklevel=2)
            return
        stats = self._stats_of(module)
        if stats is None:
            return
        self._open_frame(stats.mod_fqn, stats, _ModState.PRE_BW, _ModState.PEAK_BW)

    def _post_bw_hook(self, module: nn.Module | None, args: Any) -> None:
        if module is None:
            warnings.warn("a module died before its backward: it gets no snapshot", stacklevel=2)
            return
        stats = self._stats_of(module)
        if stats is not None:
            stats.snapshots.setdefault(_ModState.POST_BW, []).append(self._engine.now())

    def _register_global_optimizer_hook(self) -> None:
        def _opt_step_pre_hook(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
            self._in_opt = True

        def _opt_step_post_hook(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
            self._track_optimizer_states(self._ref_class.OPT, optimizer)  # type: ignore[attr-defined]
            self._in_opt = False

        self._optimizer_hook_handles = (
            register_optimizer_step_pre_hook(_opt_step_pre_hook),
            register_optimizer_step_post_hook(_opt_step_post_hook),
        )

    def _deregister_param_and_optimizer_hooks(self) -> None:
        for handles in self._param_to_grad_hook_handles.values():
            for handle in handles:
                handle.remove()
        self._param_to_grad_hook_handles.clear()
        if self._optimizer_hook_handles is not None:
            for handle in self._optimizer_hook_handles:
                handle.remove()
            self._optimizer_hook_handles = None

    # The context

    def _attach(self) -> None:
        self._register_global_optimizer_hook()
        self._mod_tracker.register_user_hooks(
            self._pre_fw_hook, self._post_fw_hook, self._pre_bw_hook, self._post_bw_hook
        )

    def _detach(self) -> None:
        self._deregister_param_and_optimizer_hooks()
        self._mod_tracker.clear_user_hooks()

    def _learn_block_sizes(self) -> None:
        """Blocks older than the context may be larger than their tensors; the allocator knows."""
        if not any(dev.type == "cuda" for dev in self._engine.now()):
            return
        with contextlib.suppress(Exception):  # a device without snapshots has no such blocks
            for address, size in _cuda_blocks():
                self._engine.set_block_bytes(address, size)

    def _begin(self, fake: bool) -> None:
        """All of it, or, where something raises, nothing."""
        with contextlib.ExitStack() as undo:
            self._engine.start(fake)
            undo.callback(self._engine.stop)
            undo.callback(self._detach)
            self._attach()
            self._track_resize()
            undo.callback(self._restore_resize)
            self._engine.reset_peak()
            self._mod_tracker.__enter__()
            undo.pop_all()

    def __enter__(self) -> MemTracker:
        if self._depth == 0:
            self._fake_mode_on_entry = self._ask.fake_mode = active_fake_mode()
            fake = self._fake_mode_on_entry is not None
            self._engine.drop_dead()
            if not fake:
                self._learn_block_sizes()
            self._begin(fake)
        self._depth += 1
        return self

    def __exit__(self, *args: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._engine.stop()
        self._detach()
        self._restore_resize()
        self._mod_tracker.__exit__(*args)
        for name in list(self._frames):
            self._close_frame(name)
        self._in_opt = self._in_ac = False
        self._ac_mod = None
        self._last_peak = self._engine.peak()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs `func` and tracks its results. For callers of upstream's way: the context itself
        watches operators in C++, and pushes no dispatch mode."""
        result = func(*args, **(kwargs or {}))
        category = self._engine.category_now()
        for tensor in tensors_in(result):
            self._engine.track(tensor, category)
        return result


def _cuda_blocks() -> Iterator[tuple[int, int]]:
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                yield block["address"], block["size"]
