"""Which ranks of a job differ, and how one of each is found and run."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import peakline
from peakline._estimate import all_ranks
from peakline._virtual_cuda._rank_kinds import RankKinds, shard_size, shard_starts


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 16])
def test_kinds_of_shards_are_where_torch_chunks_differ(parts: int) -> None:
    for size in range(1, 40):
        lengths = [len(chunk) for chunk in torch.arange(size).chunk(parts)]
        lengths += [0] * (parts - len(lengths))
        starts = {i for i in range(parts) if i == 0 or lengths[i] != lengths[i - 1]}
        assert shard_starts(size, parts) == starts, size
        assert [shard_size(size, parts, place) for place in range(parts)] == lengths


def test_kinds_of_a_mesh_are_its_stages_and_each_stages_uneven_shards() -> None:
    with peakline.virtual_gpu("h200", devices=8):
        dist.init_process_group("nccl", rank=0, world_size=8)
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("pp", "dp"))
        model = nn.Linear(16, 10, bias=False, device="cuda")
        fully_shard(model, mesh=mesh["dp"])
        kinds = RankKinds()
        kinds.add_stages(mesh.get_group("pp"))
        kinds.add_sharded_tensors(model.parameters())
        assert kinds.stages(0) == [0, 4]
        assert kinds.shards(0) == [0, 3]  # 3, 3, 3 and 1 rows


def sizes_of(rank: int, rows: int, dp: int, tp: int) -> tuple[list[int], list[int]]:
    """What a rank holds of a matrix with `rows` rows, and the ranks that it thinks differ."""
    with peakline.virtual_gpu("h200", devices=8):
        dist.init_process_group("nccl", rank=rank, world_size=dp * tp)
        mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
        model = nn.Linear(16, rows, bias=False, device="cuda")
        parallelize_module(model, mesh["tp"], ColwiseParallel())
        fully_shard(model, mesh=mesh["dp"])
        kinds = RankKinds()
        kinds.add_sharded_tensors(model.parameters())
        return list(model.weight.to_local().shape), kinds.shards(rank)


@pytest.mark.parametrize(("rows", "dp", "tp"), [(32, 4, 2), (20, 4, 2), (12, 4, 2), (12, 2, 4)])
def test_one_rank_of_every_size_is_named_when_fsdp_shards_what_tensor_parallel_left(
    rows: int, dp: int, tp: int
) -> None:
    held = [tuple(sizes_of(rank, rows, dp, tp)[0]) for rank in range(dp * tp)]
    named = sizes_of(0, rows, dp, tp)[1]
    assert {held[rank] for rank in named} == set(held)
    assert len(named) == len(set(held))


def test_equal_slices_of_a_mesh_are_equal_and_others_are_not() -> None:
    with peakline.virtual_gpu("h200", devices=8):
        dist.init_process_group("nccl", rank=0, world_size=4096)
        mesh = init_device_mesh("cuda", (512, 8), mesh_dim_names=("dp", "tp"))
        again = init_device_mesh("cuda", (512, 8), mesh_dim_names=("dp", "tp"))
        other = init_device_mesh("cuda", (512, 8), mesh_dim_names=("dp", "ep"))
        assert mesh["tp"] == mesh["tp"] == again["tp"]
        assert hash(mesh["tp"]) == hash(again["tp"])
        for one, two in itertools.combinations([mesh["tp"], mesh["dp"], mesh, other["ep"]], 2):
            assert one != two
        assert list(mesh._flatten_rank_map) == list(range(4096))


def pipeline_of_two(rank: int, tell: all_ranks.Tell) -> tuple[int, dict[str, Any] | None]:
    """Only the second stage, from rank 4, has uneven shards, which only its own ranks can know."""
    tell("stages", [rank % 4, 4 + rank % 4])
    tell("shards", [rank, rank + 3] if rank == 4 else [rank])
    return 0, {"rank": rank}


def test_shards_that_only_a_later_stage_knows_of_are_estimated_once() -> None:
    status, answers = all_ranks.estimate_distinct(pipeline_of_two)
    assert status == 0
    assert sorted(answer["rank"] for answer in answers) == [0, 4, 7]
    assert answers[0]["distinct_ranks"] == [0, 4, 7]


def test_a_rank_that_dies_is_a_failure_and_not_left_out() -> None:
    def estimate(rank: int, tell: all_ranks.Tell) -> tuple[int, dict[str, Any] | None]:
        if rank == 1:
            os._exit(7)
        tell("shards", [0, 1, 2])
        return 0, {"rank": rank}

    status, answers = all_ranks.estimate_distinct(estimate)
    assert status == 1
    assert sorted(answer["rank"] for answer in answers) == [0, 2]
    assert answers[0]["distinct_ranks"] == [0, 1, 2]


def test_no_rank_is_begun_after_rank_0_has_failed() -> None:
    def estimate(rank: int, tell: all_ranks.Tell) -> tuple[int, dict[str, Any] | None]:
        tell("stages", list(range(100)))
        return 1, None

    status, answers = all_ranks.estimate_distinct(estimate, jobs=1)
    assert (status, answers) == (1, [])
