"""What collectives move, by operator: a drop-in for torch.distributed._tools.fake_collectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed._functional_collectives  # the operators of functional collectives
from torch._C._distributed_c10d import FakeWork, ProcessGroup, Work, _resolve_process_group
from torch.utils._pytree import tree_leaves

__all__ = ["CollectiveOp", "FakeWork", "collective_ops", "non_functional_collectives"]

_Op = torch._ops.OpOverload

c10d = torch.ops.c10d
_c10d_functional = torch.ops._c10d_functional
_c10d_functional_autograd = torch.ops._c10d_functional_autograd
_dtensor = torch.ops._dtensor


class _Row(NamedTuple):
    """One operator. `group`: which argument is its process group. `moved`: which tensors travel.

    `work`: where its handle is: 0 the result itself, 1 the second of the results, -1 it has none.
    """

    name: str
    group: int = -1
    moved: str = ""
    work: int = -1


# "first", "second": that argument, tensor or nest of tensors; "result"; "both": of the first two
# the larger; "sum": the first argument and the result; "out": the tensor given to be filled.
_NON_FUNCTIONAL = (
    _Row("broadcast_", 1, "first", 1),
    _Row("allreduce_", 1, "first", 1),
    _Row("reduce_", 1, "first", 0),
    _Row("send", 1, "first", 0),
    _Row("recv_", 1, "first", 0),
    _Row("recv_any_source_", 1, "first", 0),
    _Row("allgather_", 2, "first", 1),
    _Row("reduce_scatter_", 2, "second", 1),
    _Row("_reduce_scatter_base_", 2, "second", 1),
    _Row("_allgather_base_", 2, "first", 1),
    _Row("gather_", 2, "first", 0),
    _Row("scatter_", 2, "second", 1),
    _Row("alltoall_", 2, "both", 1),
    _Row("alltoall_base_", 2, "both", 0),
    _Row("barrier", 1, "", 0),
    _Row("monitored_barrier_", 1),
)
_FUNCTIONAL = (
    _Row("broadcast", 2, "first"),
    _Row("broadcast_", 2, "first"),
    _Row("all_reduce", 2, "first"),
    _Row("all_reduce_", 2, "first"),
    _Row("all_reduce_coalesced", 2, "first"),
    _Row("all_reduce_coalesced_", 2, "first"),
    _Row("all_gather_into_tensor", 2, "result"),
    _Row("all_gather_into_tensor_out", 2, "out"),
    _Row("all_gather_into_tensor_coalesced", 2, "result"),
    _Row("reduce_scatter_tensor", 3, "first"),
    _Row("reduce_scatter_tensor_out", 3, "first"),
    _Row("reduce_scatter_tensor_coalesced", 3, "result"),
    _Row("all_to_all_single", 3, "sum"),
    _Row("isend", 3, "first", 1),
    _Row("irecv", 3, "first", 1),
    _Row("batch_p2p_ops", 4, "fourth"),
    _Row("wait_tensor"),
)
_AUTOGRAD = (
    _Row("all_gather_into_tensor", 2, "result"),
    _Row("reduce_scatter_tensor", 3, "first"),
    _Row("all_to_all_single", 3, "sum"),
)
_DTENSOR = (_Row("shard_dim_alltoall", 3, "sum"),)


def _found(namespace: Any, rows: tuple[_Row, ...]) -> dict[_Op, _Row]:
    """The rows by operator; torch's versions do not all have the same ones."""
    pairs = ((getattr(namespace, row.name, None), row) for row in rows)
    return {packet.default: row for packet, row in pairs if packet is not None}


_NON_FUNCTIONAL_OPS = _found(c10d, _NON_FUNCTIONAL)
_FUNCTIONAL_OPS = {
    **_found(_c10d_functional, _FUNCTIONAL),
    **_found(_c10d_functional_autograd, _AUTOGRAD),
    **_found(_dtensor, _DTENSOR),
}
_OPS = {**_NON_FUNCTIONAL_OPS, **_FUNCTIONAL_OPS}

non_functional_collectives: set[_Op] = set(_NON_FUNCTIONAL_OPS)
functional_collectives: set[_Op] = set(_FUNCTIONAL_OPS)
collective_ops: set[_Op] = set(_OPS)
sync_ops: set[_Op] = {op for op, row in _OPS.items() if not row.moved}


def _ops(*, group: int | None = None, work: int | None = None, moved: str = "") -> set[_Op]:
    return {
        op
        for op, row in _OPS.items()
        if (group is None or row.group == group)
        and (work is None or row.work == work)
        and (not moved or row.moved == moved)
    }


def _storages(arg: Any) -> Iterator[torch.UntypedStorage]:
    return (leaf.untyped_storage() for leaf in tree_leaves(arg) if isinstance(leaf, torch.Tensor))


def _takes_one_tensor(op: _Op) -> bool:
    return "[]" not in str(op._schema.arguments[0].type) and "List" not in str(
        op._schema.arguments[0].type
    )


class CollectiveOp:
    """Who takes part in a collective, how many bytes of tensors it moves, and its handle."""

    # Upstream's sets, by what an operator's arguments are.
    PG_ARG_1 = _ops(group=1) - {c10d.monitored_barrier_.default}
    PG_ARG_2 = _ops(group=2) & non_functional_collectives
    PG_ARG_3 = _ops(group=2) & functional_collectives
    PG_ARG_4 = _ops(group=3)
    PG_ARG_5 = _ops(group=4)
    WK = _ops(work=0)
    WK_ARG_1 = _ops(work=1)
    _FIRST = _ops(moved="first")
    COMM_TENSOR_SINGLE_UNTYPED_STORAGE = {op for op in _FIRST if _takes_one_tensor(op)} | {
        c10d._allgather_base_.default
    }
    COMM_TENSOR_ARG_0 = _FIRST - COMM_TENSOR_SINGLE_UNTYPED_STORAGE
    COMM_TENSOR_ARG_1 = _ops(moved="second") - {c10d._reduce_scatter_base_.default}
    COMM_TENSOR_ARG_0_AND_RES = _ops(moved="sum")
    COMM_TENSOR_RES_SUM = {op for op in _ops(moved="result") if not _takes_one_tensor(op)}
    COMM_TENSOR_ARG_RES = _ops(moved="result") - COMM_TENSOR_RES_SUM

    @staticmethod
    def sum_tensors(arg: Any) -> int:
        """The bytes of the storages of every tensor in `arg`."""
        return sum(storage.nbytes() for storage in _storages(arg))

    @staticmethod
    def get_process_group(func: Any, args: Any) -> ProcessGroup:
        """The group that takes part. Raises TypeError where there is none: `wait_tensor`."""
        row = _OPS.get(func)
        if row is None or row.group < 0:
            raise TypeError(f"{func} is no collective with a process group")
        group = args[row.group]
        if func in non_functional_collectives:
            return ProcessGroup.unbox(group)
        return group if isinstance(group, ProcessGroup) else _resolve_process_group(group)

    @staticmethod
    def get_comm_tensor_size(func: Any, res: Any, args: Any, kwargs: Any) -> int:
        """The bytes of the tensors that travel. Raises TypeError where none do: barriers, waits."""
        row = _OPS.get(func)
        if row is None or not row.moved:
            raise TypeError(f"{func} is no collective that moves tensors")
        size = CollectiveOp.sum_tensors
        match row.moved:
            case "first":
                return size(args[0])
            case "second":
                return size(args[1])
            case "fourth":
                return size(args[3])
            case "result":
                return size(res)
            case "out":
                return size((kwargs or {}).get("out", args[-1]))
            case "both":
                return max(size(args[0]), size(args[1]))
        return size(args[0]) + size(res)

    @staticmethod
    def get_work(func: Any, res: Any) -> Work:
        """The handle to wait on. Raises TypeError for an operator without one."""
        row = _OPS.get(func)
        if row is None or row.work < 0:
            raise TypeError(f"{func} gives no handle to wait on")
        return FakeWork.unbox(res[1] if row.work else res)
