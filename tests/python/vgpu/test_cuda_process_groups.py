"""Process groups as programs ask for them: backends, stores, options, hooks, and no socket."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import peakline
from peakline._virtual_cuda import _replicated

MINUTE = datetime.timedelta(minutes=1)


def sockets() -> int:
    links = (
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(fd)
    )
    return sum(link.startswith("socket:") for link in links)


def is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.fixture
def rank_1_of_4(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A virtual run in which nobody opens a socket."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29511")
    before = sockets()
    with peakline.virtual_gpu("h200", devices=4):
        yield
        assert sockets() == before


@pytest.mark.usefixtures("rank_1_of_4")
def test_a_mesh_without_a_process_group_makes_one_and_meets_nobody() -> None:
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    assert list(mesh.get_coordinate() or []) == [0, 1]
    assert dist.get_world_size() == 4


@pytest.mark.usefixtures("rank_1_of_4")
@pytest.mark.parametrize(
    ("asked", "method"),
    [
        ("nccl", None),
        ("gloo", "tcp://127.0.0.1:29512"),
        ("cpu:gloo,cuda:nccl", "file:///tmp/peakline-no-such-file"),
        ("mpi", None),
    ],
)
def test_the_backend_is_the_one_that_was_asked_for(asked: str, method: str | None) -> None:
    given = {"rank": 1, "world_size": 4} if method else {}
    dist.init_process_group(asked, init_method=method, **given)
    assert dist.get_backend() == asked
    assert (dist.get_rank(), dist.get_world_size()) == (1, 4)
    assert dist.get_backend(dist.new_group([0, 1], backend="gloo")) == "gloo"
    assert not Path("/tmp/peakline-no-such-file").exists()


# As on a machine with an H200 and torch 2.11.
@pytest.mark.parametrize(
    ("given", "backend", "config", "name"),
    [
        ({}, "undefined", "cuda:nccl", "nccl"),
        ({"device_id": 1}, "nccl", "cuda:nccl", "nccl"),
        ({"backend": "nccl"}, "nccl", "cuda:nccl", "nccl"),
        ({"backend": "cpu:gloo,cuda:nccl"},) + ("cpu:gloo,cuda:nccl",) * 2 + ("nccl",),
    ],
)
@pytest.mark.usefixtures("rank_1_of_4")
def test_a_group_is_called_as_on_a_machine_with_gpus(
    given: dict[str, Any], backend: str, config: str, name: str
) -> None:
    options = given | ({"device_id": torch.device("cuda:1")} if "device_id" in given else {})
    dist.init_process_group(**options)
    world: Any = dist.group.WORLD
    assert (dist.get_backend(), dist.get_backend_config()) == (backend, config)
    assert (world.name(), world._get_backend(torch.device("cuda")).name()) == (name, name)


@pytest.mark.usefixtures("rank_1_of_4")
def test_ncclgroups_and_their_options_are_there() -> None:
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.max_ctas = 8
    options._timeout = MINUTE
    dist.init_process_group("nccl", pg_options=options, timeout=MINUTE, device_id=1)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    assert isinstance(backend, dist.ProcessGroupNCCL)
    assert backend.options.config.max_ctas == 8
    group = dist.new_group([1, 3], pg_options=dist.ProcessGroupNCCL.Options())
    dist.distributed_c10d._set_pg_timeout(MINUTE, group)
    assert dist.get_process_group_ranks(dist.split_group(split_ranks=[[0, 1], [2, 3]])) == [0, 1]
    gloo = dist.new_group(backend="gloo")
    assert not isinstance(gloo._get_backend(torch.device("cpu")), dist.ProcessGroupNCCL)
    dist.monitored_barrier(gloo, timeout=MINUTE)


@pytest.mark.usefixtures("rank_1_of_4")
def test_stores_keep_what_this_rank_writes_and_wait_for_nobody() -> None:
    dist.init_process_group("nccl")
    mine: Any = dist.distributed_c10d._get_default_store()
    for store in (mine, dist.TCPStore("127.0.0.1", 29513, 4, False), dist.FileStore("/tmp/x", 4)):
        store.set("color", "blue")
        assert store.get("color") == b"blue"
        assert store.add("arrived", 1) == 4  # everybody did
        store.wait(["ready"], MINUTE)
        assert store.check(["color"])
        assert not store.check(["ready"])
        with pytest.raises(RuntimeError, match="another rank would have put there"):
            store.get("theirs")
    assert mine.compare_set("color", "blue", "red") == b"red"
    assert mine.delete_key("color")
    assert not mine.check(["color"])


@pytest.mark.usefixtures("rank_1_of_4")
def test_a_collectives_future_holds_its_result() -> None:
    dist.init_process_group("nccl")
    x = torch.ones(8, device="cuda")
    parts = [torch.empty_like(x) for _ in range(4)]
    assert dist.all_reduce(x, async_op=True).get_future().wait() == [x]
    assert dist.all_gather(parts, x, async_op=True).get_future().wait()[0][3] is parts[3]
    found: list[Any] = [None] * 4
    dist.all_gather_object(found, {"rank": 1})
    assert found == [{"rank": 1}] * 4


@pytest.mark.usefixtures("rank_1_of_4")
def test_symmetric_memory_is_refused_in_one_sentence() -> None:
    from torch.distributed import _symmetric_memory

    dist.init_process_group("nccl")
    with pytest.raises(RuntimeError, match="symmetric memory"):
        _symmetric_memory.empty(16, device=torch.device("cuda"))


def power_sgd(model: DistributedDataParallel) -> None:
    state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def peak_of_replicated(
    register: Callable[[DistributedDataParallel], None] = lambda model: None, **options: Any
) -> int:
    """Of a model of 24 MiB, which has two buckets."""
    with peakline.virtual_gpu("h200"):
        dist.init_process_group("nccl", rank=0, world_size=4)
        layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
        model = DistributedDataParallel(layers, device_ids=[0], **options)
        register(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.zeros(8, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return torch.cuda.max_memory_allocated()


def test_a_communication_hook_runs_and_its_buffers_count() -> None:
    parameters = 6 * (1024 + 1) * 1024 * 4
    plain = peak_of_replicated()
    halves = peak_of_replicated(
        lambda model: model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    )
    assert halves - plain == pytest.approx(parameters / 2, rel=0.1)
    assert peak_of_replicated(power_sgd) > plain
    builtin = peak_of_replicated(
        lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    )
    assert builtin == halves


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 3},
    ],
)
def test_the_reducer_for_cuda_builds_allocates_as_torchs_own(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torchs = peak_of_replicated(**options)
    with_hook = peak_of_replicated(power_sgd, **options)
    monkeypatch.setattr(_replicated, "OWN_REDUCER", True)
    assert peak_of_replicated(**options) == torchs
    assert peak_of_replicated(power_sgd, **options) == with_hook
