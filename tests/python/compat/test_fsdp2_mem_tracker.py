"""FSDPMemTracker: PyTorch's own findings about it, and the situations its users are in.

Everything runs as rank 0 of four on a virtual GPU with four devices, so peaks are compared with the
allocator's own; some of it again under FakeTensorMode.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compat_models import Net
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointWrapper,
    apply_activation_checkpointing,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

import peakline
from peakline.fsdp2_mem_tracker import FSDPMemTracker, _FSDPModState, _FSDPRefType

WORLD = 4
HALF = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
Sizes = dict[Any, int]


class MLP(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu()).relu()  # type: ignore[no-any-return]


@pytest.fixture
def device() -> Iterator[torch.device]:  # type: ignore[override]
    with peakline.virtual_gpu("h200", devices=4):
        dist.init_process_group("nccl", rank=0, world_size=WORLD)
        yield torch.device("cuda", 0)


def mlps(count: int = 4, dim: int = 256) -> nn.Sequential:
    with torch.device("cuda"):
        return nn.Sequential(*(MLP(dim) for _ in range(count)))


def shard(model: nn.Module, kinds: Any = MLP, **kwargs: Any) -> nn.Module:
    for module in list(model.modules()):
        if isinstance(module, kinds):
            fully_shard(module, **kwargs)
    fully_shard(model, **kwargs)
    return model


def warm_up() -> int:
    """Libraries' own memory is there before the tracker, as in upstream's tests."""
    nn.Linear(768, 768, device="cuda")(torch.randn(1, 768, device="cuda")).sum().backward()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_stats()["allocated_bytes.all.current"]


def train(
    fmt: FSDPMemTracker, model: nn.Module, optimizer: Any, x: torch.Tensor, steps: int = 2
) -> None:
    with fmt:
        for _ in range(steps):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def peak(fmt: FSDPMemTracker, device: torch.device) -> Sizes:
    return fmt.get_tracker_snapshot("peak")[device]


def allocated_peak(before: int) -> int:
    return torch.cuda.memory_stats()["allocated_bytes.all.peak"] - before


# What upstream's tests assert, with our tolerance: the same bytes, but for a library's block.


@pytest.mark.parametrize("reshard_after_forward", [True, False])
@pytest.mark.parametrize("offload", [CPUOffloadPolicy(pin_memory=False), OffloadPolicy()])
def test_the_peak_of_several_groups_in_mixed_precision_is_the_allocators(
    device: torch.device, reshard_after_forward: bool, offload: OffloadPolicy
) -> None:
    before = warm_up()
    mesh = init_device_mesh("cuda", (WORLD,))
    model = shard(
        mlps(dim=512),
        mesh=mesh,
        reshard_after_forward=reshard_after_forward,
        offload_policy=offload,
        mp_policy=HALF,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn((2048, 512), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    torch.cuda.reset_peak_memory_stats()
    train(fmt, model, optimizer, x)
    assert peak(fmt, device)["Total"] == pytest.approx(allocated_peak(before), rel=0.001)


def test_a_submodule_that_runs_alone_is_tracked(device: torch.device) -> None:
    before = warm_up()
    model = shard(mlps(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    x = torch.randn((8, 256), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    torch.cuda.reset_peak_memory_stats()
    first = model[0]  # type: ignore[index]
    with fmt:
        for step in range(2):
            first(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                fmt.reset_mod_stats()
    assert peak(fmt, device)["Total"] == pytest.approx(allocated_peak(before), rel=0.001)
    assert list(fmt.memory_tracking) == [first]


@pytest.mark.parametrize("reshard_after_forward", [True, False])
@pytest.mark.parametrize("how", ["composable", "wrapper"])
def test_checkpointed_blocks_are_tracked(
    device: torch.device, reshard_after_forward: bool, how: str
) -> None:
    from torch.distributed._composable import checkpoint

    before = warm_up()
    model: nn.Module = mlps()
    if how == "wrapper":
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, MLP))
        shard(model, CheckpointWrapper, reshard_after_forward=reshard_after_forward)
    else:
        for mlp in list(model.children()):
            checkpoint(mlp)
        shard(model, reshard_after_forward=reshard_after_forward)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)
    x = torch.randn((512, 256), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    torch.cuda.reset_peak_memory_stats()
    train(fmt, model, optimizer, x)
    assert peak(fmt, device)["Total"] == pytest.approx(allocated_peak(before), rel=0.001)
    if how == "composable":  # the wrapper recomputes what is inside the FSDP module
        stats = fmt.memory_tracking[next(model.children())]
        assert len(stats.snapshots[_FSDPModState.PRE_FW_AC]) == 1
        assert len(stats.snapshots[_FSDPModState.POST_FW_AC]) == 1
    assert not fmt._in_ac


def test_what_checkpointing_recomputes_is_activation(device: torch.device) -> None:
    from torch.distributed._composable import checkpoint

    model = mlps(1)
    checkpoint(model[0])
    shard(model)
    x = torch.randn((512, 256), device=device)
    fmt = FSDPMemTracker(model)
    with fmt:
        model(x).sum().backward()
    recomputed = fmt.memory_tracking[model[0]].snapshots[_FSDPModState.POST_FW_AC][0][device]
    assert recomputed["Activation"] >= 2 * 512 * 1024 * 4  # up's output and its relu


# Where the bytes are


def test_shards_states_and_gradients_have_the_bytes_of_a_quarter(device: torch.device) -> None:
    model = shard(mlps())
    shards = sum(_blocks(p.numel() // WORLD * 4) for p in model.parameters())
    reduced = sum(
        _blocks(sum(p.numel() // WORLD * 4 for p in mlp.parameters())) for mlp in model.children()
    )
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn((8, 256), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    with fmt:
        model(x).sum().backward()
        after_backward = fmt.get_tracker_snapshot()[device]
        optimizer.step()
        after_step = fmt.get_tracker_snapshot()[device]
    assert after_backward["Sharded Param"] == shards
    assert after_backward["Sharded Grad"] == reduced  # one block for a group
    assert after_backward["Unsharded Grad"] == after_backward["Unsharded Param"] == 0
    assert after_backward["Inputs"] == 8 * 256 * 4
    assert after_step["OptState"] == 2 * shards
    assert after_step["Total"] == sum(size for key, size in after_step.items() if key != "Total")


def test_uneven_shards_are_exact_on_every_rank(device: torch.device) -> None:
    dist.destroy_process_group()
    rows, columns = 10, 128
    sizes = []
    for rank in range(WORLD):
        dist.init_process_group("nccl", rank=rank, world_size=WORLD)
        model = nn.Linear(columns, rows, bias=False, device=device)
        fully_shard(model)
        fmt = FSDPMemTracker(model)
        with fmt:
            sizes.append(fmt.get_tracker_snapshot()[device]["Sharded Param"])
        dist.destroy_process_group()
    # torch.chunk gives 3, 3, 3 and 1 rows; FSDP pads what it keeps to the largest.
    assert sizes == [3 * columns * 4] * WORLD


def test_snapshots_tell_when_parameters_are_whole(device: torch.device) -> None:
    model = shard(mlps(2))
    fmt = FSDPMemTracker(model)
    x = torch.randn((8, 256), device=device)
    with fmt:
        model(x).sum().backward()
    mlp = model[0]  # type: ignore[index]
    whole = sum(_padded(p) for p in MLP(256).parameters())
    seen = fmt.memory_tracking[mlp].snapshots

    def sizes(state: _FSDPModState) -> Sizes:
        assert len(seen[state]) == 1, state
        return seen[state][0][device]

    states = set(_FSDPModState) - {_FSDPModState.PRE_FW_AC, _FSDPModState.POST_FW_AC}
    assert set(seen) == states
    assert sizes(_FSDPModState.BEF_PRE_FW)["Unsharded Param"] == 0
    assert sizes(_FSDPModState.AFT_PRE_FW)["Unsharded Param"] == whole
    assert sizes(_FSDPModState.AFT_PRE_FW)["All Gather"] > 0
    assert sizes(_FSDPModState.BEF_POST_FW)["Unsharded Param"] == whole
    assert sizes(_FSDPModState.AFT_POST_FW)["Unsharded Param"] == 0
    assert sizes(_FSDPModState.AFT_PRE_BW)["Unsharded Param"] >= whole
    assert sizes(_FSDPModState.BEF_POST_BW)["Unsharded Grad"] == whole
    assert sizes(_FSDPModState.AFT_POST_BW)["Unsharded Grad"] == 0
    assert sizes(_FSDPModState.AFT_POST_BW)["Sharded Grad"] > 0
    assert sizes(_FSDPModState.AFT_POST_BW)["Reduce Scatter"] > 0
    assert sizes(_FSDPModState.PEAK_FW)["Total"] >= sizes(_FSDPModState.AFT_PRE_FW)["Total"]
    assert sizes(_FSDPModState.PEAK_BW)["Total"] >= sizes(_FSDPModState.BEF_POST_BW)["Total"]


def _blocks(size: int) -> int:
    return -(-size // 512) * 512


def _padded(parameter: torch.Tensor) -> int:
    return _blocks(parameter.numel() * 4)


def test_without_resharding_parameters_stay_whole_until_backward(device: torch.device) -> None:
    model = shard(mlps(2), reshard_after_forward=False)
    fmt = FSDPMemTracker(model)
    with fmt:
        loss = model(torch.randn((8, 256), device=device)).sum()
        after_forward = fmt.get_tracker_snapshot()[device]["Unsharded Param"]
        loss.backward()
        after_backward = fmt.get_tracker_snapshot()[device]["Unsharded Param"]
    assert after_forward == sum(_padded(p) for m in mlps(2) for p in m.parameters())
    assert after_backward == 0


def test_resharding_to_a_smaller_mesh_keeps_a_larger_shard(device: torch.device) -> None:
    fmts = {}
    for how in (True, 2):
        model = shard(mlps(2), reshard_after_forward=how)
        fmts[how] = FSDPMemTracker(model)
        with fmts[how] as fmt:
            loss = model(torch.randn((8, 256), device=device)).sum()
            fmts[how] = fmt.get_tracker_snapshot()[device]["Sharded Param"]  # type: ignore[assignment]
            loss.backward()
    assert fmts[2] > 2 * fmts[True]  # type: ignore[operator]


def test_hybrid_sharding_keeps_the_shard_of_its_own_half(device: torch.device) -> None:
    before = warm_up()
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = shard(mlps(), mesh=mesh)
    halves = sum(_blocks(p.numel() // 2 * 4) for p in model.parameters())
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn((64, 256), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    torch.cuda.reset_peak_memory_stats()
    train(fmt, model, optimizer, x)
    assert fmt.get_tracker_snapshot()[device]["Sharded Param"] == halves
    assert peak(fmt, device)["Total"] == pytest.approx(allocated_peak(before), rel=0.001)


def test_offloaded_shards_and_states_are_on_the_cpu(device: torch.device) -> None:
    model = shard(mlps(2), offload_policy=CPUOffloadPolicy(pin_memory=False))
    whole = sum(parameter.numel() for parameter in model.parameters()) * 4
    optimizer = torch.optim.Adam(model.parameters())
    fmt = FSDPMemTracker(model, optimizer)
    train(fmt, model, optimizer, torch.randn((8, 256), device=device), steps=1)
    now = fmt.get_tracker_snapshot()
    on_cpu = now[torch.device("cpu")]
    assert on_cpu["Sharded Param"] == whole // WORLD
    assert 2 * whole // WORLD <= on_cpu["OptState"] < 2 * whole // WORLD + 1024
    assert now[device]["Sharded Param"] == now[device]["OptState"] == 0


def test_ignored_parameters_are_whole(device: torch.device) -> None:
    model = mlps(2)
    ignored = model[0].up.weight
    for mlp in model:
        fully_shard(mlp, ignored_params={ignored})
    fully_shard(model, ignored_params={ignored})
    fmt = FSDPMemTracker(model)
    with fmt:
        loss = model(torch.randn((8, 256), device=device)).sum()
        assert fmt.get_tracker_snapshot()[device]["Unsharded Param"] == ignored.numel() * 4
        loss.backward()
        now = fmt.get_tracker_snapshot()[device]
    assert now["Unsharded Grad"] == ignored.numel() * 4


def test_one_group_of_several_modules_is_tracked_for_each(device: torch.device) -> None:
    model = mlps(3)
    fully_shard([model[0], model[1]])
    fully_shard(model[2])
    fully_shard(model)
    fmt = FSDPMemTracker(model)
    optimizer = torch.optim.SGD(model.parameters())
    train(fmt, model, optimizer, torch.randn((8, 256), device=device))
    tracked = {id(module) for module in fmt.memory_tracking}
    assert tracked == {id(module) for module in (model, *model)}
    assert all(_FSDPModState.PEAK_BW in fmt.memory_tracking[m].snapshots for m in (*model,))


def test_gradients_that_are_not_reduced_yet_stay_whole(device: torch.device) -> None:
    model = shard(mlps(2))
    assert isinstance(model, FSDPModule)
    fmt = FSDPMemTracker(model)
    x = torch.randn((8, 256), device=device)
    with fmt:
        model.set_requires_gradient_sync(False)
        model(x).sum().backward()
        waiting = fmt.get_tracker_snapshot()[device]
        model.set_requires_gradient_sync(True)
        model(x).sum().backward()
        reduced = fmt.get_tracker_snapshot()[device]
    assert waiting["Unsharded Grad"] == sum(_padded(p) for m in mlps(2) for p in m.parameters())
    assert waiting["Sharded Grad"] == 0
    assert reduced["Unsharded Grad"] == 0
    assert reduced["Sharded Grad"] > 0


def test_explicit_prefetching_holds_two_modules_at_once(device: torch.device) -> None:
    peaks = {}
    for ahead in (0, 2):
        model = shard(mlps(4))
        parts: list[Any] = list(model.children())
        for index, part in enumerate(parts):
            part.set_modules_to_forward_prefetch(parts[index + 1 : index + 1 + ahead])
        fmt = FSDPMemTracker(model)
        with fmt, torch.no_grad():
            model(torch.randn((8, 256), device=device))
        snapshots = fmt.memory_tracking[parts[0]].snapshots
        peaks[ahead] = snapshots[_FSDPModState.AFT_PRE_FW][0][device]
    assert peaks[2]["All Gather"] > 2 * peaks[0]["All Gather"]


def test_nested_groups_and_buffers_are_counted_once(device: torch.device) -> None:
    with torch.device("cuda"):
        model = Net(64)
    for block in model.blocks:
        fully_shard(block.up)  # type: ignore[arg-type]
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(8, 32, 64, device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    train(fmt, model, optimizer, x)
    now = fmt.get_tracker_snapshot()[device]
    assert now["Buffer"] == 3 * 512
    assert now["Total"] <= torch.cuda.memory_allocated()


def test_any_number_of_iterations_may_run_and_end_alike(device: torch.device) -> None:
    model = shard(mlps(2))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn((8, 256), device=device)
    fmt = FSDPMemTracker(model, optimizer)
    fmt.track_inputs((x,))
    kept = []
    first = next(model.children())
    with fmt:
        for _ in range(4):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(copy.deepcopy(fmt.get_tracker_snapshot()))
            assert len(fmt.memory_tracking[first].snapshots[_FSDPModState.PEAK_BW]) == 1
    assert kept[1] == kept[2] == kept[3]


def test_fsdp_is_as_it_was_afterwards(device: torch.device) -> None:
    model = shard(mlps(2))
    state: Any = model[0]._get_fsdp_state()  # type: ignore[index,operator]
    hooks = [*model[0]._forward_pre_hooks.values(), *model[0]._forward_hooks.values()]  # type: ignore[index]
    methods = ("unshard", "wait_for_unshard", "reshard", "pre_backward", "post_backward")
    fmt = FSDPMemTracker(model)
    x = torch.randn((8, 256), device=device)
    with pytest.raises(RuntimeError), fmt:
        model(x[:, :5])
    assert [*model[0]._forward_pre_hooks.values(), *model[0]._forward_hooks.values()] == hooks  # type: ignore[index]
    assert not set(methods) & set(vars(state._fsdp_param_group))
    model(x).sum().backward()


def test_a_module_that_is_not_sharded_is_refused() -> None:
    with pytest.raises(AssertionError, match="fully_shard"):
        FSDPMemTracker(nn.Linear(2, 2))


@pytest.mark.parametrize("offload", [OffloadPolicy(), CPUOffloadPolicy(pin_memory=False)])
def test_a_fake_run_counts_the_same_tensors(offload: OffloadPolicy) -> None:
    """And no CPU memory that the real run would not have."""
    found = []
    for fake in (False, True):
        with peakline.virtual_gpu("h200", devices=4):
            dist.init_process_group("fake", rank=0, world_size=WORLD)
            mesh = init_device_mesh("cuda", (WORLD,))
            with FakeTensorMode() if fake else torch.device("cuda"):
                model = shard(mlps(2), mesh=mesh, mp_policy=HALF, offload_policy=offload)
                optimizer = torch.optim.Adam(model.parameters(), foreach=True)
                x = torch.randn((64, 256), device="cuda")
                fmt = FSDPMemTracker(model, optimizer)
                fmt.track_inputs((x,))
                train(fmt, model, optimizer, x)
                found.append(fmt.get_tracker_snapshot())
    cuda, cpu = torch.device("cuda", 0), torch.device("cpu")
    for key in ("Sharded Param", "OptState", "Inputs", "Unsharded Param", "Sharded Grad"):
        assert found[0][cuda][key] == found[1][cuda][key], key
        on_cpu = [snapshot.get(cpu, {}).get(key, 0) for snapshot in found]
        assert abs(on_cpu[0] - on_cpu[1]) <= 1024, key


def test_categories_are_upstreams() -> None:
    from torch.distributed._tools import fsdp2_mem_tracker as upstream

    for ours, theirs in (
        (_FSDPRefType, upstream._FSDPRefType),
        (_FSDPModState, upstream._FSDPModState),
    ):
        assert {m.name: m.value for m in ours} == {m.name: m.value for m in theirs}
    assert peakline.FSDPMemTracker is FSDPMemTracker


def test_displays_show_the_categories(device: torch.device, capsys: Any) -> None:
    model = shard(mlps(1))
    fmt = FSDPMemTracker(model)
    with fmt:
        model(torch.randn((8, 256), device=device)).sum().backward()
    for tabulate in (False, True):
        fmt.display_snapshot("peak", units="KiB", tabulate=tabulate)
        fmt.display_modulewise_snapshots(depth=3, units="KiB", tabulate=tabulate)
        text = capsys.readouterr().out
        assert "Sharded Param" in text
        assert "After Pre-Forward" in text


def test_a_real_run_on_the_cpu_is_tracked() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = nn.Sequential(MLP(64), MLP(64))
        shard(model, mesh=init_device_mesh("cpu", (1,)))
        whole = sum(p.numel() for p in model.parameters()) * 4
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
        x = torch.randn(32, 64)
        fmt = FSDPMemTracker(model, optimizer)
        fmt.track_inputs((x,))
        kept = []
        with fmt:
            for _ in range(3):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                kept.append(fmt.get_tracker_snapshot()[torch.device("cpu")])
    finally:
        dist.destroy_process_group()
    assert kept[1] == kept[2]
    assert kept[2]["Sharded Param"] == whole
    assert kept[2]["Unsharded Param"] == 0
    assert kept[2]["Inputs"] == 32 * 64 * 4
    assert 2 * whole <= kept[2]["OptState"] <= 2 * whole + 8 * len(list(model.parameters()))
    assert peak(fmt, torch.device("cpu"))["Total"] > 4 * whole
