"""What collectives move, one by one, in a world of four ranks on four virtual GPUs.

The bytes are those that PyTorch's own test of these tools asserts: 100 or 400 floats, or four
tensors of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._C._distributed_c10d import ProcessGroup
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import peakline
from peakline.fake_collectives import (
    CollectiveOp,
    FakeWork,
    collective_ops,
    functional_collectives,
    non_functional_collectives,
    sync_ops,
)

c10d = torch.ops.c10d
c10f = torch.ops._c10d_functional
SMALL, LARGE, MANY, MANY_LARGE = 400, 1600, 1600, 6400  # bytes


@pytest.fixture(params=["virtual", "fake on the virtual GPU"])
def world(request: pytest.FixtureRequest) -> Iterator[None]:
    with peakline.virtual_gpu("h200", devices=4):
        dist.init_process_group("nccl", rank=0, world_size=4)
        if request.param == "virtual":
            yield
        else:
            with FakeTensorMode():
                yield


class Seen(TorchDispatchMode):
    """The collectives that ran, with what peakline says about each."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: dict[Any, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in collective_ops:
            self.look(func, result, args, kwargs)
        return result

    def look(self, func: Any, result: Any, args: Any, kwargs: Any) -> None:
        if func is not c10f.wait_tensor.default:
            group = CollectiveOp.get_process_group(func, args)
            assert isinstance(group, ProcessGroup)
            assert group == dist.group.WORLD
            assert group.size() == 4
            assert group.name()
        if func not in sync_ops:
            self.sizes[func] = CollectiveOp.get_comm_tensor_size(func, result, args, kwargs)
        if func in non_functional_collectives and func is not c10d.monitored_barrier_.default:
            work = result[-1] if isinstance(result, (tuple, list)) else result
            assert isinstance(FakeWork.unbox(work), FakeWork)
            assert isinstance(CollectiveOp.get_work(func, result), FakeWork)


class Tensors:
    def __init__(self) -> None:
        self.small = torch.randn(100, device="cuda")
        self.large = torch.randn(400, device="cuda")
        self.list = [torch.randn(100, device="cuda") for _ in range(4)]
        self.large_list = [torch.randn(400, device="cuda") for _ in range(4)]


CALLS: dict[str, tuple[Callable[[Tensors], Any], Any, int]] = {
    "broadcast": (lambda t: dist.broadcast(t.small, src=0), c10d.broadcast_, SMALL),
    "all_reduce": (lambda t: dist.all_reduce(t.small), c10d.allreduce_, SMALL),
    "reduce": (lambda t: dist.reduce(t.small, dst=0), c10d.reduce_, SMALL),
    "send": (lambda t: dist.send(t.small, dst=1), c10d.send, SMALL),
    "recv": (lambda t: dist.recv(t.small, src=1), c10d.recv_, SMALL),
    "all_gather": (lambda t: dist.all_gather(t.list, t.small), c10d.allgather_, MANY),
    "reduce_scatter": (lambda t: dist.reduce_scatter(t.small, t.list), c10d.reduce_scatter_, MANY),
    "reduce_scatter_tensor": (
        lambda t: dist.reduce_scatter_tensor(t.small, t.large),
        c10d._reduce_scatter_base_,
        LARGE,
    ),
    "scatter": (
        lambda t: dist.scatter(t.small, scatter_list=t.list, src=0),
        c10d.scatter_,
        MANY,
    ),
    "gather": (lambda t: dist.gather(t.small, gather_list=t.list, dst=0), c10d.gather_, MANY),
    "all_gather_into_tensor": (
        lambda t: dist.all_gather_into_tensor(t.large, t.small),
        c10d._allgather_base_,
        LARGE,
    ),
    "all_to_all": (lambda t: dist.all_to_all(t.list, t.list), c10d.alltoall_, MANY),
    "all_to_all_single": (
        lambda t: dist.all_to_all_single(t.large, t.large),
        c10d.alltoall_base_,
        LARGE,
    ),
}
FUNCTIONAL: dict[str, tuple[Callable[[Tensors, Any], Any], Any, int]] = {
    "broadcast": (lambda t, g: functional.broadcast(t.small, 0, g), c10f.broadcast, SMALL),
    "all_reduce": (lambda t, g: functional.all_reduce(t.small, "avg", g), c10f.all_reduce, SMALL),
    "all_gather_tensor": (
        lambda t, g: functional.all_gather_tensor(t.small, 0, g),
        c10f.all_gather_into_tensor,
        MANY,
    ),
    "reduce_scatter_tensor": (
        lambda t, g: functional.reduce_scatter_tensor(t.large, "sum", 0, g),
        c10f.reduce_scatter_tensor,
        LARGE,
    ),
    "all_to_all_single": (
        lambda t, g: functional.all_to_all_single(t.small, [0] * 4, [25] * 4, g),
        c10f.all_to_all_single,
        SMALL,
    ),
    "all_reduce_coalesced": (
        lambda t, g: functional.all_reduce_coalesced(t.list, "avg", g),
        c10f.all_reduce_coalesced,
        MANY,
    ),
    "all_gather_into_tensor_coalesced": (
        lambda t, g: functional.all_gather_into_tensor_coalesced(t.list, g),
        c10f.all_gather_into_tensor_coalesced,
        MANY_LARGE,
    ),
    "reduce_scatter_tensor_coalesced": (
        lambda t, g: functional.reduce_scatter_tensor_coalesced(t.large_list, "sum", [0] * 4, g),
        c10f.reduce_scatter_tensor_coalesced,
        MANY,
    ),
}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", CALLS)
def test_a_collective_moves_the_bytes_of_its_tensors(name: str) -> None:
    call, op, size = CALLS[name]
    with Seen() as seen:
        call(Tensors())
    assert seen.sizes == {op.default: size}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_functional_collective_moves_the_bytes_of_its_tensors(name: str) -> None:
    call, op, size = FUNCTIONAL[name]
    with Seen() as seen:
        call(Tensors(), dist.group.WORLD)
    assert seen.sizes == {op.default: size}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("call", "size"),
    [
        (lambda t: functional.all_gather_tensor_autograd(t, 0, dist.group.WORLD), MANY),
        (
            lambda t: functional.all_to_all_single_autograd(t, [0] * 4, [25] * 4, dist.group.WORLD),
            SMALL,
        ),
    ],
)
def test_collectives_with_gradients_move_the_same(call: Any, size: int) -> None:
    with Seen() as seen:
        call(Tensors().small)
    assert set(seen.sizes.values()) == {size}


@pytest.mark.usefixtures("world")
def test_barriers_and_waits_move_nothing_and_say_so() -> None:
    with Seen() as seen:
        dist.barrier()
        functional.wait_tensor(Tensors().small)
    assert not seen.sizes
    for op in sync_ops:
        with pytest.raises(TypeError):
            CollectiveOp.get_comm_tensor_size(op, None, (), {})
    with pytest.raises(TypeError):
        CollectiveOp.get_process_group(c10f.wait_tensor.default, ())
    with pytest.raises(TypeError):
        CollectiveOp.get_work(c10f.wait_tensor.default, None)


def test_the_sets_hold_what_upstreams_hold() -> None:
    from torch.distributed._tools import fake_collectives as upstream

    assert non_functional_collectives == upstream.non_functional_collectives
    assert functional_collectives >= upstream.functional_collectives
    assert sync_ops == upstream.sync_ops
    names = [name for name in vars(upstream.CollectiveOp) if name.isupper()]
    for name in names:
        assert getattr(CollectiveOp, name) >= getattr(upstream.CollectiveOp, name), name


def test_bytes_of_a_nest_are_those_of_its_tensors() -> None:
    nest = [torch.zeros(3), {"a": torch.zeros(2, dtype=torch.int64)}, 5]
    assert CollectiveOp.sum_tensors(nest) == 28
