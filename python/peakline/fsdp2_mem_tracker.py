"""Memory of FSDP2 models: a drop-in for torch.distributed._tools.fsdp2_mem_tracker."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

import torch
from torch import nn, optim
from torch.distributed.fsdp import FSDPModule
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from peakline._dropin.fsdp_parts import hook_slots, param_groups, waits_in_place
from peakline._dropin.fsdp_stats import (
    _FSDPModMemStats,
    _FSDPModState,
    _FSDPRefType,
    _FSDPState,
    _SavedFSDPMethods,
)
from peakline._dropin.mem_stats import _TOTAL_KEY
from peakline._patches import Patches
from peakline.mem_tracker import MemTracker

__all__ = ["FSDPMemTracker"]

_PRIVATE_NAMES = (_TOTAL_KEY,)  # upstream's

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")


class FSDPMemTracker(MemTracker):
    """`MemTracker` for a model sharded by `fully_shard`, in FSDP's own categories.

    `memory_tracking` has the FSDP modules, with snapshots before and after what FSDP does at their
    boundaries. Parameters, gradients and optimizer states that exist at entry count. Any number of
    iterations may run; a module's lists begin anew when it is called as the outermost module.
    Without `optm` the states of every optimizer that steps are counted.

        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((batch,))
        with tracker as fmt:
            model(batch).sum().backward()
            optimizer.step()
        fmt.display_snapshot("peak", units="MiB")
        fmt.display_modulewise_snapshots(depth=3, units="MiB", tabulate=True)

    One thread enters and leaves it; autograd's threads working for that thread are seen too.
    """

    def __init__(self, mod: nn.Module, optm: optim.Optimizer | None = None) -> None:
        super().__init__()
        if not isinstance(mod, FSDPModule):
            raise AssertionError(
                "FSDPMemTracker takes a module that fully_shard was applied to; "
                "for any other module there is MemTracker"
            )
        self._root_mod = mod
        self._optm = optm
        self._fsdp_mod_to_saved_methods = WeakIdKeyDictionary()
        self._fsdp_state = _FSDPState.PRE_FW
        self._ref_class = _FSDPRefType
        self._mod_tracker._on_inactive = None  # frames end with what FSDP does, not before it
        self._undo = contextlib.ExitStack()
        self._group_patches = Patches()
        self._forced = -1

    # What memory is, while FSDP works

    @contextlib.contextmanager
    def _all_is(self, reftype: _FSDPRefType) -> Iterator[None]:
        before, self._forced = self._forced, self._category[reftype]
        self._engine.set_category(self._forced)
        try:
            yield
        finally:
            self._forced = before
            self._engine.set_category(before)

    def _label(self, tensor: torch.Tensor | None, reftype: _FSDPRefType) -> None:
        if tensor is not None:
            self._engine.label(tensor, self._category[reftype])

    def _instrument_fsdp_sharded_params_grads(self, fsdp_param_group: Any) -> None:
        for fsdp_param in fsdp_param_group.fsdp_params:
            self._label(fsdp_param.sharded_param, _FSDPRefType.SHARDED_PARAM)
            self._label(fsdp_param.sharded_param.grad, _FSDPRefType.SHARDED_GRAD)
            if hasattr(fsdp_param, "_unsharded_param"):
                self._label(fsdp_param._unsharded_param, _FSDPRefType.UNSHARDED_PARAM)
                self._install_unsharded_grad_hook(fsdp_param._unsharded_param)
            self._label_unsharded_grads(fsdp_param)

    def _label_unsharded_grads(self, fsdp_param: Any) -> None:
        unsharded = getattr(fsdp_param, "_unsharded_param", None)
        if unsharded is not None:
            self._label(unsharded.grad, _FSDPRefType.UNSHARDED_GRAD)
        accumulated = getattr(fsdp_param, "unsharded_accumulated_grad", None)
        self._label(accumulated, _FSDPRefType.UNSHARDED_GRAD)

    def _install_unsharded_grad_hook(self, param: torch.Tensor) -> None:
        if not param.requires_grad or param in self._param_to_grad_hook_handles:
            return
        labeller = self._engine.gradient_labeller(self._category[_FSDPRefType.UNSHARDED_GRAD])
        handle = param.register_post_accumulate_grad_hook(labeller)
        self._param_to_grad_hook_handles[param] = (handle,)

    def _instrument_ignored_params(self) -> None:
        """What FSDP was told to ignore, or was never given, is whole on every rank."""
        sharded = {
            id(fsdp_param.sharded_param)
            for module in self._root_mod.modules()
            for group in param_groups(module)
            for fsdp_param in group.fsdp_params
        }
        for param in self._root_mod.parameters():
            if id(param) not in sharded:
                self._label(param, _FSDPRefType.UNSHARDED_PARAM)
                self._label(param.grad, _FSDPRefType.UNSHARDED_GRAD)
                self._install_unsharded_grad_hook(param)

    # Modules

    def _fsdp_stats(self, fsdp_mod: nn.Module) -> _FSDPModMemStats:
        stats: Any = self._stats_of(fsdp_mod)
        if stats is None:
            name = self._mod_tracker.get_known_fqn(fsdp_mod)
            stats = _FSDPModMemStats(name or type(fsdp_mod).__name__)
            self._add_stats(fsdp_mod, stats)
        return stats  # type: ignore[no-any-return]

    def _snap(self, stats: _FSDPModMemStats, state: _FSDPModState) -> None:
        stats.snapshots.setdefault(state, []).append(self._engine.now())

    def _begin_iteration(self, root: nn.Module) -> None:
        for module in root.modules():
            stats = self._stats_of(module)
            if stats is not None:
                stats.snapshots.clear()

    def _fsdp_state_pre_forward(
        self,
        fsdp_mod: nn.Module,
        orig_fsdp_state_pre_fw: Callable[_P, tuple[tuple[*_Ts], dict[str, Any]]],
    ) -> Callable[_P, tuple[tuple[*_Ts], dict[str, Any]]]:
        """Snapshots around FSDP's work before a forward: unsharding, and prefetching others."""

        @wraps(orig_fsdp_state_pre_fw)
        def inner(*args: _P.args, **kwargs: _P.kwargs) -> tuple[tuple[*_Ts], dict[str, Any]]:
            is_bw = self._mod_tracker.is_bw
            known = self._stats_of(fsdp_mod) is not None
            stats = self._fsdp_stats(fsdp_mod)
            if not is_bw:
                self._fsdp_state = _FSDPState.PRE_FW
                if known and self._mod_tracker.parents == {"Global", stats.mod_fqn}:
                    self._begin_iteration(fsdp_mod)
                self._open_frame(
                    stats.mod_fqn, stats, _FSDPModState.BEF_PRE_FW, _FSDPModState.PEAK_FW
                )
            result = orig_fsdp_state_pre_fw(*args, **kwargs)
            if is_bw:
                if self._ac_mod is None:
                    self._ac_mod = weakref.ref(fsdp_mod)
                    self._in_ac = True
                self._snap(stats, _FSDPModState.PRE_FW_AC)
            else:
                self._snap(stats, _FSDPModState.AFT_PRE_FW)
                self._fsdp_state = _FSDPState.FW
            return result

        return inner

    def _fsdp_state_post_forward(
        self, fsdp_mod: nn.Module, orig_fsdp_state_post_fw: Callable[_P, _R]
    ) -> Callable[_P, _R]:
        """Snapshots around FSDP's work after a forward: resharding."""

        @wraps(orig_fsdp_state_post_fw)
        def inner(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if self._mod_tracker.is_bw:
                return orig_fsdp_state_post_fw(*args, **kwargs)
            stats = self._fsdp_stats(fsdp_mod)
            self._fsdp_state = _FSDPState.POST_FW
            self._snap(stats, _FSDPModState.BEF_POST_FW)
            output = orig_fsdp_state_post_fw(*args, **kwargs)
            self._snap(stats, _FSDPModState.AFT_POST_FW)
            self._close_frame(stats.mod_fqn)
            return output

        return inner

    def _end_of_recomputation(self, fsdp_mod: nn.Module, inputs: Any, outputs: Any) -> None:
        if not self._mod_tracker.is_bw:
            return
        self._snap(self._fsdp_stats(fsdp_mod), _FSDPModState.POST_FW_AC)
        if self._ac_mod is not None and self._ac_mod() is fsdp_mod:
            self._ac_mod = None
            self._in_ac = False

    def _fsdp_param_group_pre_backward(
        self, fsdp_mod: nn.Module, orig_fsdp_param_group_pre_backward: Callable[_P, Any]
    ) -> Callable[_P, None]:
        """Snapshots around FSDP's work before a backward: unsharding, and prefetching others."""

        @wraps(orig_fsdp_param_group_pre_backward)
        def inner(*args: _P.args, **kwargs: _P.kwargs) -> None:
            self._fsdp_state = _FSDPState.PRE_BW
            self._engine.note_backward()
            stats = self._fsdp_stats(fsdp_mod)
            self._open_frame(stats.mod_fqn, stats, _FSDPModState.BEF_PRE_BW, _FSDPModState.PEAK_BW)
            orig_fsdp_param_group_pre_backward(*args, **kwargs)
            self._snap(stats, _FSDPModState.AFT_PRE_BW)
            self._fsdp_state = _FSDPState.BW

        return inner

    def _fsdp_param_group_post_backward(
        self, fsdp_mod: nn.Module, orig_fsdp_param_group_post_backward: Callable[_P, Any]
    ) -> Callable[_P, None]:
        """Snapshots around FSDP's work after a backward: resharding, reducing gradients."""

        @wraps(orig_fsdp_param_group_post_backward)
        def inner(*args: _P.args, **kwargs: _P.kwargs) -> None:
            group = getattr(orig_fsdp_param_group_post_backward, "__self__", None)
            groups = [group] if group is not None else param_groups(fsdp_mod)
            params = [param for each in groups for param in each.fsdp_params]
            for fsdp_param in params:
                self._label_unsharded_grads(fsdp_param)
            stats = self._fsdp_stats(fsdp_mod)
            self._snap(stats, _FSDPModState.BEF_POST_BW)
            self._fsdp_state = _FSDPState.POST_BW
            with self._all_is(_FSDPRefType.REDUCE_SCATTER):
                orig_fsdp_param_group_post_backward(*args, **kwargs)
            for fsdp_param in params:
                self._label(fsdp_param.sharded_param.grad, _FSDPRefType.SHARDED_GRAD)
                self._label_unsharded_grads(fsdp_param)
            self._snap(stats, _FSDPModState.AFT_POST_BW)
            self._close_frame(stats.mod_fqn)

        return inner

    # Into FSDP and out of it

    def _unsharding(self, group: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        unshard, wait_for_unshard = group.unshard, group.wait_for_unshard

        @wraps(unshard)
        def gathering(*args: Any, **kwargs: Any) -> Any:
            with self._all_is(_FSDPRefType.ALL_GATHER):
                return unshard(*args, **kwargs)

        @wraps(wait_for_unshard)
        def gathered(*args: Any, **kwargs: Any) -> Any:
            with self._all_is(_FSDPRefType.UNSHARDED_PARAM):
                result = wait_for_unshard(*args, **kwargs)
            for fsdp_param in group.fsdp_params:
                unsharded = getattr(fsdp_param, "_unsharded_param", None)
                if unsharded is not None:
                    self._label(unsharded, _FSDPRefType.UNSHARDED_PARAM)
                    self._install_unsharded_grad_hook(unsharded)
            return result

        return gathering, gathered

    def _resharding(self, group: Any) -> Callable[..., Any]:
        reshard = group.reshard

        @wraps(reshard)
        def resharding(*args: Any, **kwargs: Any) -> Any:
            # To a smaller mesh (reshard_after_forward=n) it copies what this rank keeps.
            with self._all_is(_FSDPRefType.SHARDED_PARAM):
                return reshard(*args, **kwargs)

        return resharding

    def _instrument_fsdp_module(self) -> None:
        for module in self._root_mod.modules():
            if not isinstance(module, FSDPModule):
                continue
            for hooks, key, is_pre in hook_slots(module):
                original = hooks[key]
                wrap = self._fsdp_state_pre_forward if is_pre else self._fsdp_state_post_forward
                hooks[key] = wrap(module, original)
                self._undo.callback(_put_back, hooks, key, original)
            # Checkpointing ends a recomputation early, by an exception: FSDP's own hook misses it.
            handle = module.register_forward_hook(self._end_of_recomputation, always_call=True)
            self._undo.callback(handle.remove)
            for group in param_groups(module):
                self._instrument_group(module, group)
        for buffer in self._root_mod.buffers():
            self._label(buffer, _FSDPRefType.BUFFER)
        self._instrument_ignored_params()

    def _instrument_group(self, module: nn.Module, group: Any) -> None:
        if "unshard" not in vars(group):  # a group of several modules is met again
            self._instrument_fsdp_sharded_params_grads(group)
            gathering, gathered = self._unsharding(group)
            self._group_patches.set(group, "unshard", gathering)
            self._group_patches.set(group, "wait_for_unshard", gathered)
            self._group_patches.set(group, "reshard", self._resharding(group))
        saved = _SavedFSDPMethods(group.pre_backward, group.post_backward)
        self._fsdp_mod_to_saved_methods[module] = saved
        before = self._fsdp_param_group_pre_backward(module, saved.pre_backward)
        after = self._fsdp_param_group_post_backward(module, saved.post_backward)
        self._group_patches.set(group, "pre_backward", before)
        self._group_patches.set(group, "post_backward", after)

    def _instrument_optimizer(self) -> None:
        if self._optm is None:
            self._register_global_optimizer_hook()
            return
        self._track_optimizer_states(_FSDPRefType.OPT, self._optm)

        def _opt_step_pre_hook(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
            self._in_opt = True

        def _opt_step_post_hook(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
            self._track_optimizer_states(_FSDPRefType.OPT, optimizer)
            self._in_opt = False

        self._optimizer_hook_handles = (
            self._optm.register_step_pre_hook(_opt_step_pre_hook),
            self._optm.register_step_post_hook(_opt_step_post_hook),
        )

    def _register_module_and_optimizer_hooks(self) -> None:
        self._undo.enter_context(self._group_patches)
        self._instrument_fsdp_module()
        self._instrument_optimizer()
        if self._fake_mode_on_entry is not None:
            self._undo.enter_context(waits_in_place())

    def _deregister_module_and_optimizer_hooks(self) -> None:
        self._undo.close()
        self._fsdp_mod_to_saved_methods.clear()
        self._deregister_param_and_optimizer_hooks()

    def _attach(self) -> None:
        self._register_module_and_optimizer_hooks()

    def _detach(self) -> None:
        self._deregister_module_and_optimizer_hooks()
        self._forced = -1
        self._engine.set_category(-1)

    # What is given to it

    def track_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Counts the tensors in `inputs`, however nested, as Inputs."""

        def _track_inputs(tensor: torch.Tensor) -> None:
            self._label(tensor, _FSDPRefType.INP)

        for leaf in tree_leaves(inputs):
            if isinstance(leaf, torch.Tensor):
                _track_inputs(leaf)

    def track_external(self, *external: nn.Module | optim.Optimizer | torch.Tensor) -> None:
        """Does nothing, as upstream's: the model and the optimizer are known already."""

    def __enter__(self) -> FSDPMemTracker:
        super().__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """For callers of upstream's way; see `MemTracker`."""
        return super().__torch_dispatch__(func, types, args, kwargs)


def _put_back(hooks: Any, key: int, hook: Any) -> None:
    if key in hooks:  # else somebody took it away, and it stays away
        hooks[key] = hook
