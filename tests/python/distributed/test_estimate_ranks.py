"""One rank of a job that is not there: flags, environment, kinds of ranks, and what they hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import peakline
from peakline._estimate import arguments, job
from peakline._virtual_cuda._routing import shares

PIPELINE = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
part = nn.Sequential(*(nn.Linear(256, 256) for _ in range(rank + 1))).to(device)
given = torch.zeros(2, 256, device=device, requires_grad=rank > 0)
out = torch.zeros(2, 256, device=device, requires_grad=True)
stage = PipelineStage(part, rank, world, device, input_args=(given,), output_args=(out,))
schedule = ScheduleGPipe(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())
optimizer = torch.optim.AdamW(part.parameters())
while True:
    x = torch.randn(8, 256, device=device)
    schedule.step(*([x] if rank == 0 else []), **({"target": x} if rank == world - 1 else {}))
    optimizer.step()
    optimizer.zero_grad()
"""

# Two stages on each rank, which learn the shapes of their inputs from each other.
INTERLEAVED = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
def part(stage):
    return nn.Linear(256 * (stage + 1), 256 * (stage + 2), device=device)
stages = [PipelineStage(part(n), n, 2 * world, device) for n in (rank, rank + world)]
loss = lambda y, t: (y.mean(1) - t.mean(1)).square().mean()
schedule = ScheduleInterleaved1F1B(stages, 4, loss_fn=loss)
optimizer = torch.optim.AdamW([p for stage in stages for p in stage.submod.parameters()])
while True:
    x = torch.randn(8, 256, device=device)
    schedule.step(*([x] if rank == 0 else []), **({"target": x} if rank == world - 1 else {}))
    optimizer.step()
    optimizer.zero_grad()
"""

SAVES_SHARDS = """
import os, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = fully_shard(nn.Linear(64, 64, device="cuda"))
dcp.save({"model": model.state_dict()}, checkpoint_id="kept")
state = {"model": model.state_dict()}
dcp.load(state, checkpoint_id="kept")
dcp.save({"model": model.state_dict()}, checkpoint_id="fresh")
print("saved and loaded", sorted(os.listdir("kept")))
"""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--rank", "1"], "need --world-size"),
        (["--world-size", "4", "--rank", "4"], "0 to 3"),
        (["--world-size", "0"], "from 1"),
        (["--world-size", "4", "--rank", "1", "--ranks", "all-distinct"], "not both"),
        (["--world-size", "4", "--local-world-size", "5"], "1 to 4"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused(flags: list[str], words: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments.parse(["train.py", *flags])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_the_environment_is_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    args = arguments.parse(["train.py", "--world-size", "20", "--rank", "17"])
    assert args.devices == 8
    job.set_environment(args, 17)
    wanted = {"RANK": "17", "WORLD_SIZE": "20", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}
    assert wanted.items() <= os.environ.items()
    assert os.environ["GROUP_RANK"] == "2"
    assert {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)


def test_one_rank_of_each_stage_is_estimated_and_the_largest_shown(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PIPELINE)
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "peakline._estimate_script", str(script), "--world-size", "3"]
    command += ["--ranks", "all-distinct", "--steps", "2", "--json", str(out)]
    command += ["--nccl-memory", "16MiB", "-o", str(tmp_path / "run.peak")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(out.read_text())
    assert [row["rank"] for row in answer["ranks"]] == [0, 1, 2]
    assert answer["rank"] == 2
    assert answer["peak_allocated"] == max(row["peak_allocated"] for row in answer["ranks"])
    assert answer["world_size"] == 3
    assert answer["communicators"] == [3]
    assert answer["nccl_memory"] == 16 << 20
    assert "the largest" in done.stdout
    assert sorted(path.name for path in tmp_path.glob("*.peak")) == [
        "run.0.peak",
        "run.1.peak",
        "run.2.peak",
    ]


def estimated(script: Path, *flags: str) -> dict[str, Any]:
    """The answer, from a process whose folder is the script's."""
    command = [sys.executable, "-m", "peakline._estimate_script", script.name, *flags]
    command += ["--steps", "2", "--json", "-"]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"stderr": done.stderr}


def test_a_stage_learns_its_inputs_shape_from_the_rank_before(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(INTERLEAVED)
    answer = estimated(script, "--world-size", "2", "--rank", "1")
    assert not answer["partial"]
    parameters = sum((256 * (n + 1) + 1) * 256 * (n + 2) * 4 for n in (1, 3))
    assert answer["by_category"]["Parameter"] == parameters
    assert sum(answer["by_category"][name] for name in ("Gradient", "Optstate")) >= 3 * parameters


@pytest.mark.parametrize("rank", ["0", "1"])
def test_saved_shards_are_read_back_and_replace_nothing(tmp_path: Path, rank: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SAVES_SHARDS)
    (tmp_path / "kept").mkdir()
    before = {name: tmp_path / "kept" / name for name in (".metadata", "__0_0.distcp")}
    for path in before.values():
        path.write_text("of a real run")
    answer = estimated(script, "--world-size", "2", "--rank", rank)
    assert "saved and loaded" in answer["stderr"]
    assert {path.read_text() for path in before.values()} == {"of a real run"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "train.py"]


def test_a_rank_that_waits_for_an_object_is_told_so() -> None:
    with peakline.virtual_gpu("h200", devices=2):
        dist.init_process_group("nccl", rank=1, world_size=2)
        with pytest.raises(RuntimeError, match="no other"):
            dist.recv_object_list([None], src=0)
        gathered: list[Any] = [None, None]
        dist.all_gather_object(gathered, "mine")
        assert gathered == ["mine", "mine"]


def test_replicas_and_shards_of_a_thousand_ranks_hold_their_part() -> None:
    with peakline.virtual_gpu("h200"):
        dist.init_process_group("nccl", rank=17, world_size=1024)
        whole = 1024 * 1024 * 4
        replica = DistributedDataParallel(nn.Linear(1024, 1024, bias=False, device="cuda"))
        assert torch.cuda.memory_allocated() >= whole
        del replica
        before = torch.cuda.memory_allocated()
        hybrid = nn.Linear(1024, 1024, bias=False, device="cuda")
        mesh = init_device_mesh("cuda", (128, 8), mesh_dim_names=("replicate", "shard"))
        fully_shard(hybrid, mesh=mesh)
        assert torch.cuda.memory_allocated() - before == whole // 8
        before = torch.cuda.memory_allocated()
        sharded = nn.Linear(1024, 1024, bias=False, device="cuda")
        fully_shard(sharded, mesh=init_device_mesh("cuda", (1024,)))
        assert torch.cuda.memory_allocated() - before == whole // 1024


def test_context_parallel_attention_keeps_its_own_part_of_the_sequence() -> None:
    from torch.distributed.tensor.experimental import context_parallel

    batch, heads, length, width, world = 2, 8, 1024, 64, 4
    with peakline.virtual_gpu("h200", devices=world):
        dist.init_process_group("nccl", rank=1, world_size=world)
        torch.cuda.set_device(1)
        mesh = init_device_mesh("cuda", (world,))
        x = torch.randn(batch, length, width, device="cuda")
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
            assert x.shape == (batch, length // world, width)
            shape = (batch, heads, length // world, width)
            q, k, v = (
                torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                for _ in range(3)
            )
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            kept = torch.cuda.memory_allocated() - before
            peak = torch.cuda.max_memory_allocated() - before
        assert x.shape == (batch, length, width)
    part = batch * heads * (length // world)
    output, sums = part * width * 2, part * 4  # bf16; one float a row
    random_state = 2 * 512
    assert out.shape == shape
    assert kept == output + sums + random_state
    assert peak >= kept + world * 2 * output  # every rank's keys and values came by


def test_tokens_are_dealt_evenly_or_as_was_said() -> None:
    for tokens in (0, 7, 100, 4096):
        for imbalance in (0.0, 1.0, 1.5, 9.0):
            counts = shares(tokens, 8, range(2, 4), imbalance)
            assert sum(counts) == tokens
            assert sum(counts[2:4]) == min(tokens, round(imbalance * tokens / 4))
    assert shares(16, 4, range(0, 1), 1.0) == [4, 4, 4, 4]
    assert shares(16, 4, range(0, 1), 2.0)[0] == 8
    assert shares(10, 2, range(0, 2), 1.0) == [5, 5]


@pytest.mark.parametrize("imbalance", [1.0, 2.0])
def test_experts_get_the_stated_share_of_tokens_that_nobody_knows(imbalance: float) -> None:
    gpu = peakline.virtual_gpu("h200", devices=4)
    gpu.job.routing_imbalance = imbalance
    with gpu:
        dist.init_process_group("nccl", rank=1, world_size=4)
        chosen = torch.randn(4096, 8, device="cuda").argmax(1)
        counts = torch.bincount(chosen, minlength=8)
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts)
        assert sum(counts.tolist()) == 4096
        mine = int(imbalance * 512)
        assert counts.tolist()[2:4] == [mine, mine]
        assert received.tolist() == [mine, mine] * 4
        assert torch.histc(chosen.float(), bins=8, min=0, max=8).tolist() == counts.tolist()
    assert gpu.job.routed


def test_counts_that_are_known_stay_as_they_are() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        dist.init_process_group("nccl", rank=0, world_size=1)
        assert torch.bincount(torch.tensor([0, 2, 2]).cuda(), minlength=4).tolist() == [1, 0, 2, 0]
        assert torch.bincount(torch.tensor([1, 1]), minlength=2).tolist() == [0, 2]
        many = torch.arange(100_000) % 7
        assert torch.equal(
            torch.bincount(many.cuda(), minlength=8).cpu(), many.bincount(minlength=8)
        )
        assert torch.histc(many[:5000].float().cuda(), bins=7).sum().item() == 5000
        assert gpu.counters()["unknown_values"] == 0
    assert not gpu.job.routed


def confusion_matrix(target: torch.Tensor, predicted: torch.Tensor, classes: int) -> torch.Tensor:
    pairs = torch.bincount(target * classes + predicted, minlength=classes**2)
    return pairs.reshape(classes, classes)


@pytest.mark.parametrize("targets_known", [True, False])
def test_a_confusion_matrix_routes_no_tokens(targets_known: bool) -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        predicted = torch.randn(512, 10, device="cuda").argmax(-1)
        target = torch.arange(512, device="cuda") % 10
        if not targets_known:
            target = torch.randint(0, 10, (512,), device="cuda")
        matrix = confusion_matrix(target, predicted, 10)
        assert matrix.cpu().shape == (10, 10)
        (matrix.diag() / matrix.sum(1)).tolist()
    assert not gpu.job.routed


def test_shares_that_nobody_reads_are_no_assumption() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        chosen = torch.randn(512, 8, device="cuda").topk(2).indices
        frequency = torch.bincount(chosen.flatten(), minlength=8) / chosen.numel()
        assert frequency.mean().item() == 1 / 8
    assert not gpu.job.routed
