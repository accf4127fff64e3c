"""DistributedDataParallel's reducer, for builds of torch whose own asks the CUDA driver for times.

It allocates what torch's does: one flat buffer for each bucket, made again after the first step in
the order in which gradients came, and a map of the parameters that were used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as native
from torch.autograd.variable import Variable

Hook = Callable[[Any], torch.futures.Future[Any]]


class Bucket:
    """What a communication hook is given: as torch's GradBucket."""

    def __init__(self, place: int, last: bool, members: list[Tensor], dtype: torch.dtype) -> None:
        self.members = members
        self._place, self._last = place, last
        size = sum(member.numel() for member in members)
        self._buffer = torch.empty(size, dtype=dtype, device=members[0].device)
        self.views = self._cut()
        self.waiting = len(members)
        self.reduced: torch.futures.Future[Any] | None = None

    def _cut(self) -> list[Tensor]:
        views, start = [], 0
        for member in self.members:
            views.append(_like(member, self._buffer, start))
            start += member.numel()
        return views

    def index(self) -> int:
        return self._place

    def buffer(self) -> Tensor:
        return self._buffer

    def gradients(self) -> list[Tensor]:
        return self.views

    def parameters(self) -> list[Tensor]:
        return self.members

    def is_last(self) -> bool:
        return self._last

    def set_buffer(self, buffer: Tensor) -> None:
        self._buffer = buffer
        self.views = self._cut()


def _like(member: Tensor, buffer: Tensor, start: int) -> Tensor:
    """The part of `buffer` for `member`, laid out as it is where it has no gaps."""
    if torch.ops.aten.is_non_overlapping_and_dense(member):
        return buffer.as_strided(member.size(), member.stride(), start)
    return buffer.narrow(0, start, member.numel()).view(member.size())


class Reducer:
    """The part of torch's `Reducer` that DistributedDataParallel calls."""

    def __init__(
        self,
        params: list[Tensor],
        bucket_indices: list[list[int]],
        per_bucket_size_limits: list[int],
        process_group: Any,
        expect_sparse_gradients: list[bool],
        bucket_bytes_cap: int,
        find_unused_parameters: bool,
        gradient_as_bucket_view: bool,
        param_to_name_mapping: dict[int, str],
        first_bucket_bytes_cap: int,
        *others: Any,
    ) -> None:
        self._params = params
        self._sparse = expect_sparse_gradients or [False] * len(params)
        self._caps = [first_bucket_bytes_cap, bucket_bytes_cap]
        self._finds_unused = find_unused_parameters
        self._as_view = gradient_as_bucket_view
        self._static = self._rebuilt = self._expecting = False
        self._order: list[int] = []  # of gradients in the first step that reduces
        self.hook: Hook | None = None
        self._dtype: torch.dtype | None = None
        self._make_buckets(bucket_indices)
        self._used: Tensor | None = None
        if find_unused_parameters:
            self._make_map()
        # Hooks of the nodes that accumulate, as torch's: what comes in is alive while they run.
        self._nodes = [_accumulator(param) for param in params]
        self._handles = [
            node.register_hook(self._on_gradient(place)) for place, node in enumerate(self._nodes)
        ]

    def _make_buckets(self, indices: list[list[int]]) -> None:
        self._buckets: list[Bucket] = []  # the old ones go first
        self._places: dict[int, tuple[int, int]] = {}
        for place, members in enumerate(indices):
            chosen = [self._params[index] for index in members]
            last, dtype = place == len(indices) - 1, self._dtype or chosen[0].dtype
            self._buckets.append(Bucket(place, last, chosen, dtype))
            self._places |= {index: (place, slot) for slot, index in enumerate(members)}

    def _make_map(self) -> None:
        """Which parameters were used: only where some may not be."""
        device = self._params[0].device
        self._used = torch.empty(len(self._params), dtype=torch.int32, device=device)

    def _on_gradient(self, index: int) -> Callable[[Any, Any], None]:
        return lambda outputs, inputs: self._autograd_hook(index)

    def _autograd_hook(self, index: int) -> None:
        if not self._expecting:
            return  # gradients are only accumulated, as under no_sync()
        if self._may_rebuild():
            self._order.append(index)
        self._is_ready(index)

    def _is_ready(self, index: int, unused: bool = False) -> None:
        if index in self._ready:
            return
        self._ready.add(index)
        place, slot = self._places[index]
        bucket = self._buckets[place]
        view, param = bucket.views[slot], self._params[index]
        if param.grad is None or unused:
            view.zero_()
        elif param.grad.data_ptr() != view.data_ptr():
            view.copy_(param.grad)
            if self._as_view:
                param.grad = view
        bucket.waiting -= 1
        if bucket.waiting == 0:
            self._reduce_in_order()

    def _reduce_in_order(self) -> None:
        while self._next < len(self._buckets) and self._buckets[self._next].waiting == 0:
            bucket = self._buckets[self._next]
            bucket.reduced = self.hook(bucket) if self.hook is not None else None
            self._next += 1
        if self._next == len(self._buckets):
            Variable._execution_engine.queue_callback(self._finalize)

    def _finalize(self) -> None:
        self._expecting = False
        for bucket in self._buckets:
            result = bucket.reduced.wait() if bucket.reduced is not None else bucket.buffer()
            result = result[0] if isinstance(result, (list, tuple)) else result
            if result.data_ptr() != bucket.buffer().data_ptr():
                bucket.buffer().copy_(result)
            bucket.reduced = None
            for param, view in zip(bucket.members, bucket.views, strict=True):
                self._give_back(param, view)

    def _give_back(self, param: Tensor, view: Tensor) -> None:
        if param.grad is None or param.grad.data_ptr() == view.data_ptr():
            return
        if self._as_view:
            param.grad = view
        else:
            param.grad.copy_(view)

    def prepare_for_forward(self) -> None:
        pass

    def prepare_for_backward(self, outputs: list[Tensor]) -> None:
        self._expecting, self._next, self._ready = True, 0, set[int]()
        for bucket in self._buckets:
            bucket.waiting = len(bucket.members)
        if outputs:  # those of a model that may leave parameters out
            used = _leaves_of(outputs)
            for index, param in enumerate(self._params):
                if id(param) not in used:
                    self._is_ready(index, unused=True)

    def _may_rebuild(self) -> bool:
        return not self._rebuilt and (self._static or not self._finds_unused)

    def _rebuild_buckets(self) -> bool:
        if not self._may_rebuild() or len(self._order) < len(self._params):
            return False
        came = [self._params[index] for index in self._order]
        sparse = [self._sparse[index] for index in self._order]
        indices, _ = native._compute_bucket_assignment_by_size(
            came, self._caps, sparse, self._order
        )
        self._rebuilt = True
        self._make_buckets(indices)
        return True

    def _set_static_graph(self) -> None:
        self._static = True
        self._make_map()

    def _set_mixed_precision_param_dtype(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._make_buckets([[i for i in self._places if self._places[i][0] == place]
                            for place in range(len(self._buckets))])  # fmt: skip

    def _remove_autograd_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _get_zeros_like_grad_buckets(self) -> list[Bucket]:
        return []

    def _get_local_used_map(self) -> Tensor | None:
        return self._used

    def __getattr__(self, name: str) -> Any:
        if name in _WITHOUT_EFFECT:
            return lambda *args, **kwargs: None
        raise AttributeError(name)


# Settings of torch's reducer that change no memory: times, names, checks.
_WITHOUT_EFFECT = {
    "set_logger",
    "_set_ddp_runtime_logging_sample_rate",
    "_set_forward_pass_work_handle",
    "_set_optimizer_in_backward",
    "_set_sparse_metadata",
    "_check_reducer_finalized",
    "_install_post_backward_futures",
    "_reset_state",
    "_update_process_group",
    "_delay_all_reduce",
}


def _accumulator(param: Tensor) -> Any:
    """The node of `param` that adds to its gradient. It lives as long as somebody keeps it."""
    with torch.enable_grad():
        view: Any = param.expand_as(param)
    return view.grad_fn.next_functions[0][0]


def _leaves_of(outputs: Iterable[Tensor]) -> set[int]:
    """The parameters that a backward from `outputs` reaches, by id."""
    found, seen = set(), set()
    nodes = [output.grad_fn for output in outputs]
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        nodes += [following for following, _ in node.next_functions]
    return found


class Logger:
    """DistributedDataParallel's, which keeps nothing: there is no clock for virtual devices."""

    def __init__(self, reducer: Any) -> None:
        pass

    def _get_ddp_logging_data(self) -> Any:
        return type("LoggingData", (), {"strs_map": {}, "ints_map": {}})()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None
