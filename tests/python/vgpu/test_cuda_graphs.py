"""CUDA graphs and memory pools: private pools of the simulated allocator."""

import gc
import itertools

import pytest
import torch
from torch import nn

import peakline

MIB = 2**20


def reserved() -> int:
    return torch.cuda.memory_reserved()


def test_a_captured_training_step_needs_what_it_needed_on_an_h200() -> None:
    """Truth: torch 2.11.0+cu130, peaks of the step that captures and of those that replay."""
    with peakline.virtual_gpu("h200"):
        with torch.device("cuda"):
            model = nn.Sequential(
                *[
                    nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
                    for _ in range(8)
                ]
            )
            x = torch.rand(4096, 1024)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

        torch.cuda.reset_peak_memory_stats()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graph.replay()
        first = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        graph.replay()
        second = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    assert first == (2015697408, 2239758336)
    assert second == (690291712, 2239758336)


def test_a_replay_takes_the_time_of_what_was_captured() -> None:
    with peakline.virtual_gpu("h200") as run:
        x = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        graph = torch.cuda.CUDAGraph()
        for mark in marks:
            if mark is marks[2]:
                with torch.cuda.graph(graph):
                    x @ x @ x
            elif mark is marks[3]:
                graph.replay()
            else:
                x @ x @ x
            mark.record()
        eager, captured, replayed = (
            early.elapsed_time(late) for early, late in itertools.pairwise(marks)
        )
        flops = run.timing().flops
    assert eager > 1.0  # 2.2 TFLOP
    assert captured < 0.2
    assert replayed == pytest.approx(eager, rel=0.05)
    assert flops == 3 * 4 * 8192**3


def test_a_replay_of_a_captured_training_step_is_a_step() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        model = nn.Linear(64, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        graphs = {name: torch.cuda.CUDAGraph() for name in ("forward", "step")}
        x = torch.empty(8, 64, device="cuda")
        with torch.cuda.graph(graphs["forward"]):
            model(x)
        with torch.cuda.graph(graphs["step"]):
            model(x).sum().backward()
            optimizer.step()
        assert gpu.steps.done == 1
        graphs["forward"].replay()
        assert gpu.steps.done == 1
        graphs["step"].replay()
        graphs["step"].replay()
        assert gpu.steps.done == 3


def test_what_a_graph_freed_stays_in_its_pool_until_the_graph_is_gone() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        base = reserved()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
        del y
        torch.cuda.empty_cache()
        kept = reserved() - base
        assert kept >= 32 * MIB
        graph.replay()
        graph.reset()
        torch.cuda.empty_cache()
        assert reserved() <= base + 2 * MIB


def test_a_stream_that_waits_for_the_capture_is_captured_too() -> None:
    with peakline.virtual_gpu("h200"):
        graph, other = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                assert torch.cuda.is_current_stream_capturing()
                inside = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
            torch.cuda.current_stream().wait_stream(other)
        assert not torch.cuda.is_current_stream_capturing()
        pools = {
            segment["segment_pool_id"]
            for segment in torch.cuda.memory_snapshot()
            if segment["total_size"] >= 32 * MIB
        }
        assert pools == {graph.pool()}
        assert inside.numel() == 32 * MIB


def test_graphs_share_a_pool_by_its_handle() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        pool = torch.cuda.graph_pool_handle()
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first, pool=pool):
            x.add(1)
        once = reserved()
        with torch.cuda.graph(second, pool=pool):
            x.add(1)
        assert reserved() == once
        assert isinstance(first, torch.cuda.CUDAGraph)


def test_a_graph_is_captured_on_a_side_stream_and_once() -> None:
    with peakline.virtual_gpu("h200"):
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="non-default stream"):
            graph.capture_begin()
        with pytest.raises(RuntimeError, match="without a preceding"):
            graph.replay()
        with torch.cuda.graph(graph):
            pass
        with pytest.raises(RuntimeError, match="already owns"), torch.cuda.graph(graph):
            pass


def test_graphed_callables_train() -> None:
    with peakline.virtual_gpu("h200"):
        model = nn.Sequential(nn.Linear(256, 256), nn.ReLU()).cuda()
        sample = torch.rand(64, 256, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(model, (sample,))
        graphed(torch.rand(64, 256, device="cuda")).sum().backward()
        assert model[0].weight.grad is not None


def test_a_mem_pool_keeps_its_memory_apart_and_gives_it_back() -> None:
    with peakline.virtual_gpu("h200"):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        del inside
        outside = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        assert reserved() == 64 * MIB
        assert [segment["total_size"] for segment in pool.snapshot()] == [32 * MIB]
        del pool
        gc.collect()
        assert reserved() == 32 * MIB
        assert outside.numel() == 32 * MIB


def test_backward_allocates_outside_of_a_pool_that_this_thread_fills() -> None:
    with peakline.virtual_gpu("h200"):
        x = torch.empty(8 * MIB, device="cuda", requires_grad=True)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            y = x * 2
            y.sum().backward()
        held = sum(segment["total_size"] for segment in pool.snapshot())
        assert held < 3 * x.numel() * 4, "the gradients are elsewhere, as on a real GPU"


def test_a_graph_that_outlives_its_gpu_disturbs_no_other() -> None:
    with peakline.virtual_gpu("h200"):
        old = torch.cuda.CUDAGraph()
        with torch.cuda.graph(old):
            torch.empty(MIB, device="cuda")
    with peakline.virtual_gpu("h200"):
        new = torch.cuda.CUDAGraph()
        with torch.cuda.graph(new):
            torch.empty(MIB, device="cuda")
        before = reserved()
        del old
        gc.collect()
        torch.cuda.empty_cache()
        assert reserved() == before
        new.replay()


def test_a_recording_says_that_the_run_had_private_pools() -> None:
    with peakline.virtual_gpu("h200") as run:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.empty(MIB, device="cuda")
    assert run.info["private_pools"] == "1"
    with peakline.virtual_gpu("h200") as plain:
        torch.empty(MIB, device="cuda")
    assert "private_pools" not in plain.info
