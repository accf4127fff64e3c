"""MemTracker: the same numbers as upstream's where upstream is right, and right where it is not."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compat_models import Net, training
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker as UpstreamMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim.optimizer import _global_optimizer_pre_hooks

from peakline.mem_tracker import (
    _PYTORCH_MIN_ALLOCATE,
    MemTracker,
    _MemRefType,
    _ModState,
)

Sizes = dict[str, dict[str, int]]


def plain(snapshot: Any) -> Sizes:
    """With text for keys, and nothing that is zero."""
    return {
        str(dev): {str(getattr(key, "value", key)): size for key, size in sizes.items() if size}
        for dev, sizes in snapshot.items()
    }


def taken(tensor: torch.Tensor | None) -> int:
    if tensor is None:
        return 0
    size = tensor.untyped_storage().nbytes()
    step = _PYTORCH_MIN_ALLOCATE if tensor.device.type == "cuda" else 1
    return -(-size // step) * step


def run_steps(tracker: Any, fake: bool, checkpointing: str | None) -> tuple[list[Any], Any]:
    """Two training steps; what the tracker says after each phase, and of each module."""
    torch.manual_seed(0)
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, optimizer, x = training("cpu", checkpointing=checkpointing)
        tracker.track_external(model, optimizer, x)
        phases = []
        with tracker:
            for step in range(2):
                loss = model(x).sum()
                phases.append(("forward", plain(tracker.get_tracker_snapshot())))
                loss.backward()
                del loss
                phases.append(("backward", plain(tracker.get_tracker_snapshot())))
                optimizer.step()
                phases.append(("step", plain(tracker.get_tracker_snapshot())))
                optimizer.zero_grad()
                phases.append(("zero_grad", plain(tracker.get_tracker_snapshot())))
                if step == 0:
                    tracker.reset_mod_stats()
        phases.append(("peak", plain(tracker.get_tracker_snapshot("peak"))))
        modules = {
            stats.mod_fqn: (
                [stats.parameter_mem, stats.buffer_mem, stats.input_mem, stats.output_mem],
                {
                    state.value: [plain(s) for s in calls]
                    for state, calls in stats.snapshots.items()
                },
            )
            for stats in tracker.memory_tracking.values()
        }
    return phases, modules


@pytest.mark.parametrize("checkpointing", [None, "module"])
def test_fake_runs_agree_with_upstream_in_every_number(checkpointing: str | None) -> None:
    ours = run_steps(MemTracker(), True, checkpointing)
    upstream = run_steps(UpstreamMemTracker(), True, checkpointing)
    assert ours[0] == upstream[0]
    assert ours[1] == upstream[1]


@pytest.mark.parametrize("checkpointing", [None, "module"])
def test_real_runs_agree_with_upstream_wherever_no_operator_is_under_way(
    checkpointing: str | None,
) -> None:
    phases, modules = run_steps(MemTracker(), False, checkpointing)
    upstream_phases, upstream_modules = run_steps(UpstreamMemTracker(), False, checkpointing)
    assert phases[:-1] == upstream_phases[:-1]
    assert modules.keys() == upstream_modules.keys()
    for name, (sizes, states) in modules.items():
        assert sizes == upstream_modules[name][0]
        assert states.keys() == upstream_modules[name][1].keys()
        for state, calls in states.items():
            theirs = upstream_modules[name][1][state]
            if state.startswith("Peak"):
                # Upstream does not see what operators take for themselves.
                for mine, other in zip(calls, theirs, strict=True):
                    assert mine["cpu"]["Total"] >= other["cpu"]["Total"]
            else:
                assert calls == theirs, (name, state)


@pytest.fixture
def four_ranks() -> Iterator[Any]:
    """A mesh of four ranks, of which only this one is there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def run_sharded_steps(tracker: Any, fake: bool, mesh: Any) -> list[Sizes]:
    torch.manual_seed(0)
    phases = []
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, _, x = training("cpu")
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
        tracker.track_external(model, optimizer, x)
        with tracker:
            for _ in range(2):
                loss = model(x).sum()
                phases.append(plain(tracker.get_tracker_snapshot()))
                loss.backward()
                del loss
                phases.append(plain(tracker.get_tracker_snapshot()))
                optimizer.step()
                optimizer.zero_grad()
                phases.append(plain(tracker.get_tracker_snapshot()))
                tracker.reset_mod_stats()
    return phases


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize("fake", [False, True])
def test_sharded_models_agree_with_upstream(four_ranks: Any, fake: bool) -> None:
    upstream = run_sharded_steps(UpstreamMemTracker(), fake, four_ranks)
    assert run_sharded_steps(MemTracker(), fake, four_ranks) == upstream


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("checkpointing", [None, "module", "function", "reentrant"])
def test_the_peak_is_the_allocators_to_the_byte(checkpointing: str | None) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    model, optimizer, x = training("cuda", 256, checkpointing)
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    torch.cuda.reset_peak_memory_stats()
    with tracker:
        for _ in range(3):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert (
            tracker.get_tracker_snapshot()[x.device]["Total"]
            == torch.cuda.memory_allocated() - before
        )
    peak = tracker.get_tracker_snapshot("peak")[x.device]
    assert peak["Total"] == torch.cuda.max_memory_allocated() - before
    assert peak["Total"] == sum(size for key, size in peak.items() if key != "Total")


@pytest.mark.parametrize("fake", [False, True])
def test_parameters_gradients_and_states_are_told_apart_exactly(
    device: torch.device, fake: bool
) -> None:
    if fake and device.type == "cuda":
        pytest.skip("fake tensors are made on the CPU here")
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, optimizer, x = training(device)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)

        def check() -> None:
            sizes = tracker.get_tracker_snapshot()[device]
            states = [s for state in optimizer.state.values() for s in state.values()]
            assert sizes["Parameter"] == sum(map(taken, model.parameters()))
            assert sizes["Buffer"] == sum(map(taken, model.buffers()))
            assert sizes["Gradient"] == sum(taken(p.grad) for p in model.parameters())
            assert sizes["Optstate"] == sum(taken(s) for s in states if s.device == device)

        with tracker:
            check()
            for _ in range(2):
                out = model(x)
                out.sum().backward()
                check()
                del out
                optimizer.step()
                check()
                optimizer.zero_grad()
                check()


@pytest.mark.parametrize("checkpointing", ["module", "function", "reentrant"])
@pytest.mark.parametrize("fake", [False, True])
def test_what_checkpointing_recomputes_is_activation(
    device: torch.device, checkpointing: str, fake: bool
) -> None:
    if fake and device.type == "cuda":
        pytest.skip("fake tensors are made on the CPU here")
    seen = []
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, optimizer, x = training(device, checkpointing=checkpointing)
        x.requires_grad_()
        tracker = MemTracker()
        tracker.track_external(model, optimizer, x)
        last: Any = model.blocks[-1]

        def at_end_of_recomputation(module: nn.Module, args: Any, out: Any) -> None:
            if tracker._mod_tracker.is_bw:
                seen.append(tracker.get_tracker_snapshot()[device])

        last.down.register_forward_hook(at_end_of_recomputation)
        with tracker:
            loss = model(x).sum()
            before = tracker.get_tracker_snapshot()[device]
            loss.backward()
    recomputed = seen[0]["Activation"] - before["Activation"]
    hidden = last.up.out_features * x.shape[0] * x.shape[1] * x.element_size()
    wide = 2 if checkpointing == "function" else 1
    # The two wide tensors inside the block are there again, and as activations.
    assert recomputed >= 2 * hidden * wide
    gradients_flowing = 2 * x.untyped_storage().nbytes() * wide
    assert seen[0]["Temp"] <= gradients_flowing


def test_iterations_need_no_reset_and_keep_only_their_own_lists(device: torch.device) -> None:
    model, optimizer, x = training(device)
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    lengths = []
    with tracker:
        for _ in range(4):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            counts = {
                stats.mod_fqn: {state.value: len(calls) for state, calls in stats.snapshots.items()}
                for stats in tracker.memory_tracking.values()
            }
            lengths.append(counts)
    assert all(counts == lengths[0] for counts in lengths)
    assert all(n == 1 for counts in lengths[0].values() for n in counts.values())


def test_a_module_used_twice_in_one_iteration_has_two_entries() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x))  # type: ignore[no-any-return]

    model = Twice()
    with MemTracker() as tracker:
        for _ in range(2):
            model(torch.randn(2, 8, requires_grad=True)).sum().backward()
    snapshots = tracker.memory_tracking[model.inner].snapshots
    assert len(snapshots[_ModState.PRE_FW]) == len(snapshots[_ModState.POST_FW]) == 2
    assert len(snapshots[_ModState.PRE_BW]) == len(snapshots[_ModState.POST_BW]) == 2


def test_statistics_are_live_can_be_changed_and_deeply_copied() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    peaks = []
    with MemTracker() as tracker:

        def inside(module: nn.Module, args: Any) -> None:
            kept = torch.zeros(1000)
            stats = tracker.memory_tracking[model]
            peaks.append(stats.snapshots[_ModState.PEAK_FW][-1][kept.device]["Total"])

        model[0].register_forward_pre_hook(inside)
        start = tracker.get_tracker_snapshot()
        model(torch.randn(2, 8))
        stats = tracker.memory_tracking[model]
        frozen = copy.deepcopy(stats.snapshots)
        stats.snapshots[_ModState.PRE_FW].clear()
        assert len(frozen[_ModState.PRE_FW]) == 1
        assert frozen.keys() == {_ModState.PRE_FW, _ModState.POST_FW, _ModState.PEAK_FW}
        tracker.reset_mod_stats()
        assert len(tracker.memory_tracking) == 0
    assert start == {}
    assert peaks[0] >= 4000


def test_modules_are_held_weakly() -> None:
    with MemTracker() as tracker:
        model = nn.Linear(8, 8)
        model(torch.randn(2, 8)).sum().backward()
        assert len(tracker.memory_tracking) == 1
        assert tracker.get_tracker_snapshot()[torch.device("cpu")]["Parameter"] == 72 * 4
        del model
        gc.collect()
        assert len(tracker.memory_tracking) == 0
        assert tracker.get_tracker_snapshot() == {}


def test_what_was_alive_at_entry_counts_only_when_given(device: torch.device) -> None:
    given, other = torch.zeros(256, device=device), torch.zeros(4096, device=device)
    tracker = MemTracker()
    tracker.track_external([given, None])  # type: ignore[arg-type]
    with tracker as mt:
        sizes = mt.get_tracker_snapshot()[device]
        assert sizes["Other"] == sizes["Total"] == 1024
        made = other * 2
        sizes = mt.get_tracker_snapshot()[device]
        assert (sizes["Activation"], sizes["Total"]) == (made.nbytes, made.nbytes + 1024)
        del given
        sizes = mt.get_tracker_snapshot()[device]
        assert (sizes["Other"], sizes["Total"]) == (0, made.nbytes)
        del other, made
        assert mt.get_tracker_snapshot() == {}


@pytest.mark.parametrize("fake", [False, True])
def test_resize_of_a_storage_is_followed_and_keeps_its_category(fake: bool) -> None:
    with FakeTensorMode() if fake else contextlib.nullcontext():
        layer = nn.Linear(16, 16, bias=False)
        tracker = MemTracker()
        tracker.track_external(layer)
        cpu = torch.device("cpu")
        with tracker:
            storage = layer.weight.untyped_storage()
            storage.resize_(0)
            assert tracker.get_tracker_snapshot() == {}
            storage.resize_(4096)
            assert tracker.get_tracker_snapshot()[cpu]["Parameter"] == 4096
            storage.resize_(512)
            sizes = tracker.get_tracker_snapshot()[cpu]
            assert (sizes["Parameter"], sizes["Total"]) == (512, 512)


def test_frozen_and_tied_parameters_and_accumulated_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    frozen = nn.Linear(8, 8, bias=False).requires_grad_(False)
    net = nn.Sequential(model, frozen)
    cpu = torch.device("cpu")
    with MemTracker() as tracker:
        for _ in range(3):
            net(torch.randn(2, 8)).sum().backward(retain_graph=True)
        sizes = tracker.get_tracker_snapshot()[cpu]
    assert sizes["Parameter"] == 2 * 256
    assert sizes["Gradient"] == 256
    assert tracker.memory_tracking[net].parameter_mem == 2 * 256


def test_frees_after_exit_are_known_and_the_peak_stays() -> None:
    cpu = torch.device("cpu")
    with MemTracker() as tracker:
        kept = torch.ones(1024)
        torch.ones(4096)
    assert tracker.get_tracker_snapshot()[cpu]["Total"] == 4096
    del kept
    assert tracker.get_tracker_snapshot() == {}
    assert tracker.get_tracker_snapshot("peak")[cpu]["Total"] == 4096 + 4 * 4096
    with tracker:
        again = torch.ones(8)
        assert tracker.get_tracker_snapshot()[cpu]["Total"] == again.nbytes
    assert tracker.get_tracker_snapshot("peak")[cpu]["Total"] == 32


def test_an_exception_inside_leaves_torch_as_it_was() -> None:
    before = torch.UntypedStorage.resize_
    layer = nn.Linear(4, 4)

    def interrupted() -> None:
        with MemTracker():
            layer(torch.randn(2, 4)).sum().backward()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.UntypedStorage.resize_ is before
    assert not layer.weight._backward_hooks
    assert not layer.weight._post_accumulate_grad_hooks
    assert not torch.nn.modules.module._global_forward_hooks
    with MemTracker() as tracker:
        torch.ones(4)
    assert tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"] == 16


def test_two_trackers_nest() -> None:
    cpu = torch.device("cpu")
    with MemTracker() as outer:
        first = torch.ones(256)
        with MemTracker() as inner:
            second = torch.ones(512)
            assert inner.get_tracker_snapshot()[cpu]["Total"] == second.nbytes
        assert outer.get_tracker_snapshot()[cpu]["Total"] == first.nbytes + second.nbytes


def test_under_torch_profiler_the_tracker_refuses_and_leaves_nothing_behind() -> None:
    from torch.profiler import ProfilerActivity, profile

    tracker = MemTracker()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        with pytest.raises(RuntimeError, match=r"torch\.profiler is running"):
            tracker.__enter__()
        kept = torch.ones(1024)
    ones = next(event for event in prof.key_averages() if event.key == "aten::ones")
    assert ones.cpu_memory_usage == kept.nbytes
    assert not torch.nn.modules.module._global_forward_hooks
    with tracker:
        again = torch.ones(256)
        sizes = tracker.get_tracker_snapshot()[torch.device("cpu")]
    assert sizes["Total"] == again.nbytes


def test_inference_sparse_and_compiled_code_is_tracked() -> None:
    cpu = torch.device("cpu")
    layer = nn.Linear(32, 32)
    with MemTracker() as tracker:
        with torch.inference_mode():
            out = layer(torch.ones(64, 32))
        assert tracker.get_tracker_snapshot()[cpu]["Activation"] == out.nbytes
        del out
        sparse = torch.eye(16).to_sparse()
        indices, values = sparse.indices().nbytes, sparse.values().nbytes
        assert tracker.get_tracker_snapshot()[cpu]["Activation"] == indices + values
        del sparse
        compiled = torch.compile(lambda x: (x * 2).relu() + 1, backend="aot_eager")
        result = compiled(torch.ones(256))
        assert tracker.get_tracker_snapshot()[cpu]["Activation"] >= result.nbytes
        del result, compiled


def test_inside_track_both_see_the_memory() -> None:
    import peakline

    cpu = torch.device("cpu")
    with peakline.track() as run:
        with MemTracker() as tracker:
            kept = torch.ones(1 << 16)
            assert tracker.get_tracker_snapshot()[cpu]["Total"] == kept.nbytes
        more = torch.ones(1 << 17)
    assert run.peak("cpu").bytes >= kept.nbytes + more.nbytes


def test_keys_hash_and_compare_as_plain_text() -> None:
    with MemTracker() as tracker:
        held = torch.ones(8)
        sizes = tracker.get_tracker_snapshot()[held.device]
    assert [str(k.value) if isinstance(k, _MemRefType) else k for k in sizes] == [
        "Parameter",
        "Buffer",
        "Gradient",
        "Activation",
        "Temp",
        "Optstate",
        "Other",
        "Total",
    ]
    assert sizes["Activation"] == sizes[_MemRefType.ACT] == 32


def test_bad_requests_get_one_sentence() -> None:
    tracker = MemTracker()
    with pytest.raises(ValueError, match="'current' or 'peak'"):
        tracker.get_tracker_snapshot("lowest")
    with pytest.raises(TypeError, match="modules, optimizers and tensors"):
        tracker.track_external("model")  # type: ignore[arg-type]
    with tracker:
        held = torch.ones(1)
    with pytest.raises(ValueError, match="KiB"):
        tracker.display_snapshot("current", units="parsec")
    del held


@pytest.mark.parametrize("tabulate", [False, True])
def test_displays_show_every_category_without_tabulate(
    tabulate: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer, x = training("cpu")
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    with tracker:
        model(x).sum().backward()
    tracker.display_snapshot("peak", units="KiB", tabulate=tabulate)
    peak = capsys.readouterr().out
    for name in ("cpu", "Parameter", "Activation", "Temp", "Total", "KiB"):
        assert name in peak
    tracker.display_modulewise_snapshots(depth=3, units="MiB", tabulate=tabulate)
    modules = capsys.readouterr().out
    assert "Module:  Net.blocks.2\n" in modules
    assert "Net.blocks.2.up" not in modules
    assert modules.index("Net.blocks.0") < modules.index("Net.blocks.1")
    assert "Peak-Backward" in modules


def test_host_memory_stays_flat_over_many_steps() -> None:
    model, x = Net(16, 1), torch.randn(2, 4, 16)
    with MemTracker() as tracker:
        for _ in range(3):
            model(x).sum().backward()
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(50):
            model(x).sum().backward()
        gc.collect()
        assert len(gc.get_objects()) <= objects + 100
    assert tracker._frames == {}


def test_shared_memory_counts_as_the_allocators_report_it() -> None:
    cpu = torch.device("cpu")
    with MemTracker() as tracker:
        storage = torch.UntypedStorage._new_shared(1 << 20)
        assert tracker.get_tracker_snapshot()[cpu]["Total"] == 1 << 20
        del storage
        assert cpu not in tracker.get_tracker_snapshot()


def test_entering_that_fails_half_way_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resize = torch.UntypedStorage.resize_
    hooks = len(_global_optimizer_pre_hooks)
    tracker = MemTracker()

    def refuse() -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(tracker._mod_tracker, "__enter__", refuse)
        with pytest.raises(RuntimeError, match="no"):
            tracker.__enter__()
    kept = torch.ones(1000)
    assert plain(tracker.get_tracker_snapshot()) == {}
    assert torch.UntypedStorage.resize_ is resize
    assert len(_global_optimizer_pre_hooks) == hooks
    with tracker:
        kept = torch.ones(1000)
        assert plain(tracker.get_tracker_snapshot())["cpu"]["Total"] == taken(kept)
