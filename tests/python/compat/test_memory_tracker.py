"""MemoryTracker: one row per operator, files that load safely, charts without matplotlib."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import torch.distributed as dist
from compat_models import training
from torch import nn
from torch.distributed._tools.memory_tracker import MemoryTracker as UpstreamMemoryTracker
from torch.utils._python_dispatch import TorchDispatchMode

from peakline.memory_tracker import BYTES_PER_MB, MemoryProfileDispatchMode, MemoryTracker


def image_net(device: torch.device) -> nn.Module:
    with torch.device(device):
        features = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        return nn.Sequential(features, nn.Flatten(1), nn.Linear(8 * 30 * 30, 2))


def iteration(model: nn.Module, device: torch.device) -> None:
    images = torch.randn(2, 3, 32, 32, device=device)
    target = torch.tensor([0, 1]).to(device)
    nn.functional.cross_entropy(model(images), target).backward()


def monitored(device: torch.device, iterations: int = 1) -> MemoryTracker:
    model = image_net(device)
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    assert len(tracker._hooks) > 0
    for _ in range(iterations):
        iteration(model, device)
    tracker.stop()
    assert tracker._hooks == []
    return tracker


def names(tracker: MemoryTracker) -> list[str]:
    return [name for name, _ in tracker.memories_allocated.values()]


def test_every_operator_has_a_row_in_all_three_lists(device: torch.device) -> None:
    tracker = monitored(device)
    assert tracker._op_index > 0
    for levels in (
        tracker.memories_allocated,
        tracker.memories_active,
        tracker.memories_reserved,
    ):
        assert list(levels) == list(range(tracker._op_index))
        assert all(type(name) is str and type(size) is float for name, size in levels.values())
    assert sum(tracker._operator_names.values()) == tracker._op_index
    assert set(tracker._markers) == {"fw_start", "fw_bw_boundary"}
    assert tracker._cur_module_name != ""
    assert tracker._num_alloc_retries == 0


def test_operators_are_those_a_dispatch_mode_sees_but_detach() -> None:
    device = torch.device("cpu")
    model = image_net(device)
    seen = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Spy():
        iteration(model, device)
    model.zero_grad()
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    iteration(model, device)
    tracker.stop()
    logged = [re.sub(r"_\d+$", "", name).rsplit(".", 2) for name in names(tracker)]
    assert [".".join(parts[1:]) for parts in logged] == [n for n in seen if n != "detach.default"]


def test_names_say_module_pass_operator_and_count(device: torch.device) -> None:
    ops = names(monitored(device, iterations=2))
    assert "0.0.forward.convolution.default_0" in ops
    assert "0.0.forward.convolution.default_1" in ops
    assert "0.0.backward.convolution_backward.default_0" in ops
    assert "2.forward.addmm.default_0" in ops
    assert any(name.startswith("2.backward.mm.default") for name in ops)
    assert not any("detach.default" in name for name in ops)
    assert len(set(ops)) == len(ops)


def test_sizes_are_the_bytes_in_use_in_mb() -> None:
    class Keep(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.repeat(4)

    model = nn.Sequential(Keep())
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    x = torch.zeros(1 << 18)
    kept = model(x)
    tracker.stop()
    assert tracker.memories_allocated[0] == (".zeros.default_0", 1.0)
    assert tracker.memories_allocated[tracker._op_index - 1][1] == 5.0
    assert kept.nbytes == 4 * BYTES_PER_MB


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_on_a_gpu_the_last_row_is_what_torch_says() -> None:
    tracker = MemoryTracker()
    tracker.start_monitor(nn.Linear(8, 8, device="cuda"))
    kept = torch.ones(1 << 20, device="cuda")
    stats = torch.cuda.memory_stats()
    tracker.stop()
    last = tracker._op_index - 1
    for levels, key in (
        (tracker.memories_allocated, "allocated_bytes.all.current"),
        (tracker.memories_active, "active_bytes.all.current"),
        (tracker.memories_reserved, "reserved_bytes.all.current"),
    ):
        assert levels[last][1] == stats[key] / BYTES_PER_MB
    assert kept.nbytes == 4 * BYTES_PER_MB


def test_starting_or_stopping_twice_is_refused() -> None:
    tracker = MemoryTracker()
    with pytest.raises(AssertionError):
        tracker.stop()
    model = nn.Linear(2, 2)
    tracker.start_monitor(model)
    assert isinstance(tracker.profile_mode, MemoryProfileDispatchMode)
    with pytest.raises(AssertionError):
        tracker.start_monitor(model)
    tracker.stop()
    assert tracker.profile_mode is None
    tracker.start_monitor(model)
    assert tracker._op_index == 0
    tracker.stop()


@pytest.mark.parametrize("checkpointing", ["module", "reentrant"])
def test_recomputed_operators_are_the_recomputed_modules_forward(checkpointing: str) -> None:
    model, _, x = training("cpu", checkpointing=checkpointing)
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    model(x.requires_grad_()).sum().backward()
    tracker.stop()
    boundary = tracker._markers["fw_bw_boundary"]
    after = names(tracker)[boundary:]
    assert any(name.startswith("blocks.2.up.forward.addmm") for name in after)
    assert any(name.startswith("blocks.2.up.backward.mm") for name in after)


def test_optimizer_steps_have_a_name_of_their_own() -> None:
    model, optimizer, x = training("cpu")
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    model(x).sum().backward()
    optimizer.step()
    tracker.stop()
    assert any(name.startswith("Optimizer.step._foreach") for name in names(tracker))


@pytest.fixture
def one_rank(tmp_path: Path) -> Any:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield
    dist.destroy_process_group()


def test_data_parallel_models_are_tracked(one_rank: Any) -> None:
    model = nn.parallel.DistributedDataParallel(image_net(torch.device("cpu")))
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    iteration(model, torch.device("cpu"))
    tracker.stop()
    ops = names(tracker)
    assert "module.0.0.forward.convolution.default_0" in ops
    assert "module.0.0.backward.convolution_backward.default_0" in ops


def test_fully_sharded_models_are_tracked(one_rank: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    model = image_net(torch.device("cpu"))
    mesh = dist.init_device_mesh("cpu", (1,))
    fully_shard(model, mesh=mesh)
    tracker = MemoryTracker()
    tracker.start_monitor(model)
    iteration(model, torch.device("cpu"))
    tracker.stop()
    assert any(name.startswith("0.0.forward.convolution") for name in names(tracker))


def by_hand() -> MemoryTracker:
    tracker = MemoryTracker()
    for index, name in enumerate(["a.forward.conv_0", "a.forward.relu_0", "b.backward.mm_0"]):
        tracker.memories_allocated[index] = (name, float(index * index))
        tracker.memories_active[index] = (name, float(index))
        tracker.memories_reserved[index] = (name, float(index))
        tracker._op_index += 1
    tracker._num_alloc_retries = 2
    tracker._markers["fw_start"] = 0
    return tracker


@pytest.mark.parametrize("file", ["stats.pickle", "stats.json"])
def test_saved_statistics_come_back_whole(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = by_hand()
    path = str(tmp_path / file)
    tracker.save_stats(path)
    loaded = MemoryTracker()
    loaded.load(path)
    assert loaded._op_index == 3
    assert loaded.memories_allocated == tracker.memories_allocated
    assert loaded.memories_reserved == tracker.memories_reserved
    assert loaded._markers == {"fw_start": 0}
    assert loaded._num_alloc_retries == 2
    tracker.summary()
    said = capsys.readouterr().out
    loaded.summary()
    assert capsys.readouterr().out == said
    assert "a.forward.relu_0" in said


def test_pickles_go_to_upstream_and_come_from_it(tmp_path: Path) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    by_hand().save_stats(ours)
    upstream = UpstreamMemoryTracker()
    upstream.load(ours)
    assert upstream.memories_allocated == by_hand().memories_allocated
    upstream.save_stats(theirs)
    back = MemoryTracker()
    back.load(theirs)
    assert back.memories_allocated == by_hand().memories_allocated
    assert back._op_index == 3


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("exit 3",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(_Evil()),
        pickle.dumps({"memories_allocated": _Evil()}),
        pickle.dumps({"memories_allocated": {}}),
        pickle.dumps([1, 2, 3]),
        b"",
        b"not a pickle at all",
        b'{"format": "something else"}',
        b"{",
        json.dumps({"format": "peakline.memory_tracker", "memories_allocated": 3}).encode(),
    ],
)
def test_files_that_hold_anything_else_are_refused_in_one_sentence(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "stats"
    path.write_bytes(content)
    tracker = by_hand()
    with pytest.raises(ValueError, match="statistics") as caught:
        tracker.load(str(path))
    assert "\n" not in str(caught.value)
    assert tracker._op_index == 3  # nothing was taken over


def test_summary_ranks_operators_activations_and_modules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tracker = by_hand()
    tracker.summary(top=1)
    said = capsys.readouterr().out
    assert "The number of alloc retries are: 2" in said
    assert "b.backward.mm_0: 3.0MB" in said
    assert "a.forward.relu_0: 1.0MB" not in said
    assert tracker.top_activation_ops(5) == [("a.forward.relu_0", 1.0)]
    assert tracker.module_totals() == {
        "a": {"forward": 1.0, "backward": 0.0},
        "b": {"forward": 0.0, "backward": 3.0},
    }
    MemoryTracker().summary()


@pytest.mark.parametrize("file", ["traces.html", "traces.svg"])
def test_traces_are_drawn_without_matplotlib(tmp_path: Path, file: str) -> None:
    tracker = by_hand()
    tracker._markers["<b>&"] = 1
    saved, drawn = str(tmp_path / "stats"), str(tmp_path / file)
    tracker.save_stats(saved)
    assert MemoryTracker().show_traces(saved, drawn) == drawn
    text = Path(drawn).read_text()
    assert "<b>&<" not in text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        root = ElementTree.fromstring(svg)
        assert root.findall("{*}polyline")
    assert "allocated_memory" in text
    assert text.count("<svg") == (1 if file.endswith("svg") else 4)


def test_many_operators_are_thinned_but_their_peak_is_kept(tmp_path: Path) -> None:
    tracker = MemoryTracker()
    for index in range(20_000):
        size = 1000.0 if index == 12_345 else 1.0
        for levels in (
            tracker.memories_allocated,
            tracker.memories_active,
            tracker.memories_reserved,
        ):
            levels[index] = (f"op_{index}", size)
    drawn = str(tmp_path / "traces.svg")
    tracker.show_traces(output=drawn)
    text = Path(drawn).read_text()
    assert len(text) < 200_000
    points = re.findall(r'points="([^"]*)"', text)[0].split()
    heights = [float(point.split(",")[1]) for point in points]
    assert heights.count(min(heights)) == 1


def test_a_start_that_fails_half_way_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tracker = MemoryTracker()

    def refuse() -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(tracker, "_hook_optimizers", refuse)
        with pytest.raises(RuntimeError, match="no"):
            tracker.start_monitor(model)
    assert not any(module._forward_pre_hooks for module in model.modules())
    tracker.start_monitor(model)  # which it refuses while it is monitoring
    tracker.stop()
