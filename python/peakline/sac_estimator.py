"""What recomputing ops trades: a drop-in for torch.distributed._tools.sac_estimator."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Self

import torch
from torch import nan, nn
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import SAC_IGNORED_OPS

from peakline import _new_file
from peakline._dropin import sac_order, tradeoff_chart
from peakline._dropin.op_times import gives_view, tensors_in
from peakline._dropin.sac_stats import (
    MSPS,
    SACGreedyOrderMeta,
    SACStats,
    SACTradeOffStats,
    _SACMetadata,
    _SACModMetadata,
)
from peakline._dropin.tables import table
from peakline.common_utils import get_untyped_storages
from peakline.mod_tracker import ModTracker
from peakline.runtime_estimator import KERNEL_MODEL, RuntimeEstimator, check_place
from peakline.track import note_in_recordings

__all__ = ["MSPS", "SACEstimator", "SACGreedyOrderMeta", "SACStats", "SACTradeOffStats"]

aten = torch.ops.aten
_ADDITIONAL_IGNORED_OPS = {
    aten.lift_fresh.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
    aten.clone.default,
}
OPS_TO_ALWAYS_SKIP = SAC_IGNORED_OPS | _ADDITIONAL_IGNORED_OPS
# CUDA's allocator hands out multiples of this.
_PYTORCH_MIN_ALLOCATE = 2**9 if int(os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", 0)) == 0 else 1


def _display_stats_tabular(headers: list[str], table_data: list[list[Any]]) -> None:
    print(table(headers, table_data))


def _is_inplace(func: Any) -> bool:
    name = func.overloadpacket.__name__
    if re.fullmatch(r"__i.+__", name):
        return True
    return bool(name.endswith("_") and not name.endswith("__"))


def _is_random(func: Any, kwargs: dict[str, Any]) -> bool:
    if func.overloadpacket.__name__ == "_scaled_dot_product_flash_attention":
        return bool(kwargs.get("dropout_p", 0) != 0)  # without dropout it draws nothing
    return torch.Tag.nondeterministic_seeded in func.tags


def _allocated(storage: torch.UntypedStorage, on_gpu: bool) -> int:
    size = storage.nbytes()
    return -(-size // _PYTORCH_MIN_ALLOCATE) * _PYTORCH_MIN_ALLOCATE if on_gpu else size


class SACEstimator(TorchDispatchMode):
    """Memory and time of every op of a forward pass, by module, and what recomputing them trades.

    `estimator(estimate_mode_type=...)` is the context manager, inside FakeTensorMode or a virtual
    GPU; the modes are RuntimeEstimator's. After it `sac_mod_stats` and `sac_mod_greedy_order_meta`
    have an entry for each module with children; `pwlf_sac_tradeoff_curve` adds
    `sac_mod_tradeoff_stats`.
    """

    def __init__(self, gpu: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sac_mod_stats: dict[str, SACStats] = {}
        self.sac_mod_tradeoff_stats: dict[str, SACTradeOffStats] = {}
        self.sac_mod_greedy_order_meta: dict[str, SACGreedyOrderMeta] = {}
        self._gpu = gpu
        self._mode_type = KERNEL_MODEL
        self._mod_tracker = ModTracker()
        self._sac_metadata: list[_SACMetadata] = []
        self._sac_mod_metadata: dict[str, _SACModMetadata] = {}
        self._leaf_modules: set[str] = set()
        self._saved_tensor_hook_ctx = torch.autograd.graph.saved_tensors_hooks(
            self._pack_hook, lambda x: x
        )
        self._saved_tensor_ids: set[int] = set()
        self._kept: list[torch.UntypedStorage] = []  # so that no address is given out twice
        self._estimate_runtime: Any = RuntimeEstimator._kernel_estimate

    def _ids(self, storages: Any) -> tuple[int, ...]:
        if RuntimeEstimator.fake_mode is not None:  # nothing is behind them
            self._kept.extend(storages)
        return tuple(storage._cdata for storage in storages)

    def _pack_hook(self, x: torch.Tensor) -> torch.Tensor:
        self._saved_tensor_ids.update(self._ids(get_untyped_storages(x)))
        return x

    def _pre_fw_hook(self, mod: nn.Module, inputs: Any) -> None:
        name = self._mod_tracker.get_known_fqn(mod)
        assert name is not None
        if next(mod.children(), None) is None:
            self._leaf_modules.add(name)
            return
        self._sac_mod_metadata[name] = _SACModMetadata(
            len(self._sac_metadata), self._get_force_store_random(inputs), []
        )

    def _post_fw_hook(self, mod: nn.Module, inputs: Any, outputs: Any) -> None:
        name = self._mod_tracker.get_known_fqn(mod)
        assert name is not None
        if name in self._leaf_modules:
            return
        ops = self._sac_mod_metadata[name]
        stats = self._get_sac_stats(ops.sac_metadata, ops.force_store_random)
        self.sac_mod_stats[name] = stats
        self.sac_mod_greedy_order_meta[name] = self._get_greedy_order_meta(stats)

    def _get_force_store_random(self, inputs: Any) -> bool:
        return all(not isinstance(x, torch.Tensor) for x in tree_leaves(inputs))

    def _get_sac_stats(self, data: list[_SACMetadata], force_store_random: bool) -> SACStats:
        kept = [op for op in data if op.func not in OPS_TO_ALWAYS_SKIP]
        place = {op.curr_idx: i for i, op in enumerate(kept)}
        # What was made by an op that is skipped starts with the op in place itself.
        inplace = [
            (place[op.inplace_info[0]], place.get(op.inplace_info[1], place[op.inplace_info[0]]))
            for op in kept
            if op.inplace_info
        ]
        stats = SACStats(
            func_names=[op.func._overloadpacket.__name__ for op in kept],
            runtimes=[op.time_taken for op in kept],
            memory=[int(op.memory_used) for op in kept],
            view_like_ops=[i for i, op in enumerate(kept) if op.is_view_like],
            rand_ops=[i for i, op in enumerate(kept) if op.is_rand_op],
            saved_autograd_ops=[
                i for i, op in enumerate(kept) if set(op.output_ids) <= self._saved_tensor_ids
            ],
            inplace_ops=inplace,
            force_store_random=force_store_random,
        )
        self._keep_output(stats)
        return stats

    @staticmethod
    def _keep_output(stats: SACStats) -> None:
        """The last op's result is the module's own, and stays whatever is decided: it is free."""
        neither = set(stats.view_like_ops) | {op for op, _ in stats.inplace_ops}
        for i in reversed(range(len(stats.memory))):
            if i not in neither:
                stats.memory[i] = 0
                return

    def _get_inplace_metadata(
        self, func: Any, out_storages: set[torch.UntypedStorage]
    ) -> tuple[int, tuple[int, ...], dict[str, tuple[int, ...]]]:
        """The op's index, its storages, and for each module the op that made what it changes."""
        index = len(self._sac_metadata)
        ids = self._ids(out_storages)
        modules = {name for name in self._mod_tracker.parents if name not in self._leaf_modules}
        if not _is_inplace(func):
            return index, ids, dict.fromkeys(modules, ())
        makers = [op.curr_idx for op in self._sac_metadata if set(ids) <= set(op.output_ids)]
        found: dict[str, tuple[int, ...]] = {}
        for name in modules:
            known = self._sac_mod_metadata.get(name)
            start = known.start_idx if known else 0
            found[name] = (index, next((maker for maker in makers if maker >= start), index))
        return index, ids, found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(t) for t in types):
            return NotImplemented
        kwargs = kwargs or {}
        out, ms = self._estimate_runtime(func, args, kwargs)
        storages: dict[torch.UntypedStorage, bool] = {}
        for tensor in tensors_in(out):
            for storage in get_untyped_storages(tensor):
                storages[storage] = tensor.device.type == "cuda"
        # `_unsafe_view` does not say so, and gives its argument's memory.
        given = {s for t in tensors_in((args, kwargs)) for s in get_untyped_storages(t)}
        is_view = gives_view(func) or (not _is_inplace(func) and set(storages) <= given)
        size = 0 if is_view else sum(_allocated(s, gpu) for s, gpu in storages.items())
        index, ids, inplace = self._get_inplace_metadata(func, set(storages))
        for name in self._mod_tracker.parents:
            if name in self._leaf_modules:
                continue
            op = _SACMetadata(
                func, ms, size, index, ids, inplace[name], is_view, _is_random(func, kwargs)
            )
            known = self._sac_mod_metadata.get(name)
            (known.sac_metadata if known else self._sac_metadata).append(op)
        return out

    def _get_greedy_order_meta(self, sac_stats: SACStats) -> SACGreedyOrderMeta:
        return sac_order.greedy_order(sac_stats)

    def _get_sac_tradeoff_pwlf_stats(
        self,
        sac_stats: SACStats,
        greedy_order_meta: SACGreedyOrderMeta,
        n_segments: int = 2,
        save_tradeoff_graph: bool = False,
        filename: str = "ac_tradeoff",
    ) -> SACTradeOffStats:
        stats = sac_order.tradeoff(sac_stats, greedy_order_meta, n_segments)
        if save_tradeoff_graph:
            folder = Path("tradeoff_graphs")
            folder.mkdir(exist_ok=True)
            _new_file.write_text(folder / f"{filename}.svg", tradeoff_chart.svg(filename, stats))
        return stats

    def pwlf_sac_tradeoff_curve(
        self, n_segments: int = 2, save_tradeoff_graphs: bool = False
    ) -> None:
        """Fits `n_segments` joined lines to each module's curve; graphs are SVG files."""
        for name, stats in self.sac_mod_stats.items():
            self.sac_mod_tradeoff_stats[name] = self._get_sac_tradeoff_pwlf_stats(
                stats,
                self.sac_mod_greedy_order_meta[name],
                n_segments,
                save_tradeoff_graphs,
                name,
            )
        note_in_recordings("tradeoffs", tradeoff_chart.as_json(self.sac_mod_tradeoff_stats))

    def display_sac_stats(self, sac_stats: SACStats, print_tabular: bool = False) -> None:
        """Prints a module's ops."""
        print(
            f"Total Memory: {sum(sac_stats.memory)} B Total Runtime: {sum(sac_stats.runtimes)} ms"
            f" Store Random: {sac_stats.force_store_random}"
        )
        parent = dict(sac_stats.inplace_ops)
        rows = [
            [
                str(i),
                name,
                f"{sac_stats.runtimes[i]:.4f}",
                str(sac_stats.memory[i]),
                str(i in sac_stats.view_like_ops),
                str(i in sac_stats.rand_ops),
                str(i in sac_stats.saved_autograd_ops),
                str(parent.get(i)),
            ]
            for i, name in enumerate(sac_stats.func_names)
        ]
        headers = ["Op Idx", "Op Name", "Runtimes(ms)", "Memory (B)"]
        headers += ["View-like", "Random", "Saved Autograd", "In-place"]
        _display_stats_tabular(headers, rows)

    def display_sac_tradeoff_stats(
        self,
        greedy_order_meta: SACGreedyOrderMeta,
        sac_stats: SACStats,
        print_tabular: bool = False,
    ) -> None:
        """Prints what is discarded and recomputed as one op after another is."""
        order = greedy_order_meta
        memory, runtime = max(1, sum(sac_stats.memory)), sum(sac_stats.runtimes) or 1.0
        discarded, recomputed = 0, 0.0
        rows: list[list[str]] = []

        def add(ops: set[int], msps: str, stored: bool, always: bool) -> None:
            nonlocal discarded, recomputed
            discarded += sum(sac_stats.memory[i] for i in ops)
            recomputed += sum(sac_stats.runtimes[i] for i in ops)
            rows.append(
                [
                    str(ops),
                    str({sac_stats.func_names[i] for i in ops}),
                    f"{discarded / memory:.4f}",
                    str(discarded),
                    f"{recomputed / runtime:.4f}",
                    str(recomputed),
                    msps,
                    str(stored),
                    str(always),
                ]
            )

        for op in order.recomputed_ops:
            add(order.together(op), str(nan), False, True)
        for use in order.msps_meta:
            add(order.together(use.op_idx), f"{use.msps:.2e}", False, False)
        for op in order.stored_ops:
            add(order.together(op), str(nan), True, False)
        headers = ["Op Id(s)", "Op Name(s)", "Discarded Mem (%)", "Discarded Mem (B)"]
        headers += ["Recomp time (%)", "Recomp time (ms)", "MSPS", "Always Stored"]
        _display_stats_tabular([*headers, "Always Recomputed"], rows)

    def display_modulewise_sac_stats(self, depth: int = 2, print_tabular: bool = False) -> None:
        """Prints both for every module down to `depth` levels."""
        for name, stats in self.sac_mod_stats.items():
            if name.count(".") >= depth:
                continue
            print(f"Module: {name}")
            self.display_sac_stats(stats, print_tabular)
            print(f"AC Trade-off for Module: {name} MSPS = Memory/Runtime")
            self.display_sac_tradeoff_stats(
                self.sac_mod_greedy_order_meta[name], stats, print_tabular
            )

    def __call__(self, estimate_mode_type: str) -> Self:
        self._estimate_runtime = RuntimeEstimator._estimate_of(estimate_mode_type)
        self._mode_type = estimate_mode_type
        return self

    def __enter__(self) -> Self:
        RuntimeEstimator.fake_mode = check_place("SACEstimator")
        RuntimeEstimator._begin(self._gpu, self._mode_type)
        self._mod_tracker.register_user_hooks(
            pre_fw_hook=self._pre_fw_hook, post_fw_hook=self._post_fw_hook
        )
        self._mod_tracker.__enter__()
        self._saved_tensor_hook_ctx.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *args: Any) -> None:
        self._saved_tensor_hook_ctx.__exit__()
        self._mod_tracker.clear_user_hooks()
        self._mod_tracker.__exit__(*args)
        super().__exit__(*args)  # type: ignore[no-untyped-call]
        self._kept.clear()
