"""torch.compile on a virtual GPU: Inductor's own code, whose allocations are the real ones."""

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import peakline

MIB = 2**20


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def peak_of(call: Callable[[], object]) -> int:
    """Of its second run, above what was there before."""
    call()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def test_an_mlp_needs_to_the_byte_what_it_needed_on_an_h200() -> None:
    """There Inductor's cache was filled; here kernels are tuned in the first step, which takes a
    buffer of the L2 cache's size and copies, and leaves a little more reserved."""
    with peakline.virtual_gpu("h200"):
        with torch.device("cuda"):
            blocks = [
                nn.Sequential(
                    nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)
                )
                for _ in range(8)
            ]
            x = torch.rand(4096, 1024)
        model = nn.Sequential(*blocks)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        compiled = torch.compile(model)
        found = []
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            compiled(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            found.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
    (first, _), (second, reserved) = found
    assert second == 2317255680
    assert 1779926016 <= first <= 1779926016 + 60 * MIB
    assert 2369781760 <= reserved <= 1.01 * 2369781760


def test_fused_ops_allocate_their_last_result_alone() -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        return (x.sin().cos() * 2).exp()

    with peakline.virtual_gpu("h200") as run:
        x = torch.empty(MIB, device="cuda")
        compiled = torch.compile(work)
        eager = peak_of(lambda: work(x))
        fused = peak_of(lambda: compiled(x))
    assert fused == 4 * MIB < eager
    assert run.peak("cuda:0").bytes == (4 + 4 + 60) * MIB  # while its kernel is tuned


def test_what_was_compiled_counts_like_everything_else() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        torch.compile(lambda x: x.sin() + 1)(torch.empty(MIB, device="cuda"))
    assert gpu.confidence()["guessed"] == 0
    assert not [note for note in gpu.notes() if "eager" in note]


def test_a_module_a_decorated_function_and_an_optimizer_step_are_compiled() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).relu()

    @torch.compile(dynamic=True)
    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return x.square().mean()

    with peakline.virtual_gpu("h200"):
        net = Net().cuda()
        net.compile()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        step = torch.compile(optimizer.step)
        before = graphs()
        for rows in (8, 12):
            loss_of(net(torch.rand(rows, 64, device="cuda"))).backward()
            step()
        assert graphs() - before >= 3


def test_graph_breaks_run_on_and_fullgraph_refuses_them() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    with peakline.virtual_gpu("h200"):
        x = torch.rand(8, device="cuda")
        before = graphs()
        assert torch.compile(broken)(x).shape == (8,)
        assert graphs() - before == 2
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(broken, fullgraph=True)(x)


@pytest.mark.parametrize("inside", [True, False])
def test_checkpointing_recomputes(inside: bool) -> None:
    with peakline.virtual_gpu("h200"):
        linear, drop = nn.Linear(64, 64).cuda(), nn.Dropout(0.1)

        def block(x: torch.Tensor) -> torch.Tensor:
            return drop(F.gelu(linear(x)))

        def call(x: torch.Tensor) -> Any:
            return checkpoint(work, x, use_reentrant=False)

        work = block if inside else torch.compile(block)
        x = torch.rand(1024, 64, device="cuda", requires_grad=True)
        out = (torch.compile(call) if inside else call)(x)
        out.sum().backward()
        assert x.grad is not None


class OwnSlices(nn.Module):
    """Its forward builds modules: torch tells of these to hooks of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(0, 4, 2):
            x = checkpoint(self.parts[i : i + 2], x, use_reentrant=False)
        return x


def test_modules_that_compiled_code_builds_break_no_graph() -> None:
    with peakline.virtual_gpu("h200"):
        before = graphs()
        compiled = torch.compile(OwnSlices().cuda(), fullgraph=True)
        compiled(torch.rand(8, 64, device="cuda")).sum().backward()
        assert graphs() - before == 1


def test_modules_that_compiled_code_builds_break_no_graph_of_a_tracked_run() -> None:
    model = OwnSlices()
    with peakline.track():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        compiled(torch.rand(8, 64)).sum().backward()
    assert model.parts[0].weight.grad is not None


def test_library_kernels_inside_compiled_code_allocate_as_ever() -> None:
    with peakline.virtual_gpu("h200"):
        attend = torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True))
        q = torch.rand(2, 8, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        scratch = 2 * 8 * 1024 * 64 * 4  # the gradient of the queries, summed up in float32
        out = attend(q)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out.sum().backward()
        assert torch.cuda.max_memory_allocated() - before > scratch


def test_a_graph_that_cannot_be_compiled_runs_eagerly_and_counts_as_guessed() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        import torch._inductor.compile_fx

        def fail(*args: Any, **kwargs: Any) -> None:
            raise NotImplementedError("no code for this")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch._inductor.compile_fx, "_compile_fx_main", fail, raising=False)
            patch.setattr(torch._inductor.compile_fx, "aot_autograd", fail)
            y = torch.compile(lambda x: x.sin() + 1)(torch.empty(MIB, device="cuda"))
        assert y.shape == (MIB,)
    assert gpu.confidence()["guessed"] > 0
    (note,) = [note for note in gpu.notes() if "could not compile" in note]
    assert "no code for this" in note


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_frame_that_dynamo_breaks_on_runs_eagerly_and_counts_as_guessed(fullgraph: bool) -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        import torch._dynamo.symbolic_convert as tracing

        def fail(*args: Any, **kwargs: Any) -> None:
            raise ValueError("no such thing")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tracing.InstructionTranslator, "run", fail)
            function = torch.compile(lambda x: x.sin() + 1, fullgraph=fullgraph)
            y = function(torch.empty(MIB, device="cuda"))
        assert y.shape == (MIB,)
    assert gpu.confidence()["guessed"] > 0
    (note,) = [note for note in gpu.notes() if "could not trace" in note]
    assert "no such thing" in note


def test_a_frame_that_is_disabled_alone_runs_eagerly() -> None:
    """Dynamo tells such a frame by who called it."""
    with peakline.virtual_gpu("h200"):

        @torch._dynamo.disable(recursive=False)
        def alone(x: torch.Tensor) -> torch.Tensor:
            return x.sin().cos().tan()

        before = graphs()
        torch.compile(lambda x: alone(x))(torch.empty(MIB, device="cuda"))
        assert graphs() == before


def test_eager_runs_uncompiled_and_says_so() -> None:
    gpu = peakline.virtual_gpu("h200", eager=True)
    with gpu:
        before = graphs()
        torch.compile(lambda x: x.sin() + 1)(torch.empty(MIB, device="cuda"))
        assert graphs() == before
    assert gpu.confidence()["guessed"] > 0
    assert any("--eager was given" in note for note in gpu.notes())


def test_without_triton_one_sentence_says_which_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from peakline._virtual_cuda._compiled import _versions

    monkeypatch.setattr(_versions, "has_triton", lambda: False)
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        torch.compile(lambda x: x + 1)(torch.empty(8, device="cuda"))
    (note,) = [note for note in gpu.notes() if "torch.compile" in note]
    assert f"triton=={_versions.triton_for_this_torch()}" in note


@pytest.mark.parametrize(
    ("release", "triton"),
    [
        ("2.11.0+cu130", "3.6.0"),
        ("2.12.0", "3.7.0"),
        ("2.12.1", "3.7.1"),
        ("2.13.0+cpu", "3.7.1"),
        ("2.14.1", "3.8.0"),
        ("2.15.0", "3.9.0"),
        ("2.16.0a0+git1", "3.9.0"),  # the newest that is known
    ],
)
def test_every_release_of_torch_has_its_triton(release: str, triton: str) -> None:
    from peakline._virtual_cuda._compiled import _versions

    assert _versions.triton_for(release) == triton


def test_everything_is_put_back() -> None:
    import torch._dynamo.trace_rules
    import torch._inductor.config
    import torch._inductor.runtime.triton_heuristics as heuristics
    import triton.runtime

    def state() -> tuple[object, ...]:
        return (
            {
                name: os.environ.get(name)
                for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
            },
            torch._inductor.config.compile_threads,
            torch._inductor.config.autotune_local_cache,
            heuristics.CachingAutotuner.precompile,
            heuristics.CachingAutotuner.run,
            torch._C._dynamo.guards._empty_strided_cuda,
            triton.runtime.driver._active,
            triton.runtime.jit.JITFunction.run,
            list(torch._dynamo.trace_rules.SKIP_DIRS),
            list(sys.meta_path),
            torch.compile,
        )

    before = state()
    with peakline.virtual_gpu("h200"):
        torch.compile(lambda x: x * 3)(torch.empty(8, device="cuda"))
        assert state() != before
    assert state() == before
    doubled = torch.compile(lambda x: x * 2, backend="aot_eager")(torch.ones(3))
    assert doubled.tolist() == [2.0, 2.0, 2.0]


def test_attention_of_rows_that_vary_is_compiled_once() -> None:
    attend = torch.compile(
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), dynamic=True
    )
    with peakline.virtual_gpu("h200"):
        before = graphs()
        for rows in (128, 256, 384):
            q = torch.rand(2, 8, rows, 64, device="cuda", dtype=torch.bfloat16)
            assert attend(q).shape == q.shape
        assert graphs() - before == 1


def test_dynamo_may_trace_a_frame_anew() -> None:
    """Numbers that vary make it restart from inside the compiler: nothing that has failed."""

    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
            return x.softmax(-1) * factor

    gpu = peakline.virtual_gpu("h200")
    with gpu:
        scaled = torch.compile(Scaled(), dynamic=True)
        for step in range(3):
            scaled(torch.rand(4 + step, 8 + step, device="cuda"), 0.5 * step)
    assert not [note for note in gpu.notes() if "could not compile" in note]


def test_a_full_graph_may_hold_a_stand_in() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]

        attend = torch.compile(lambda q: flash_attn_func(q * 2, q, q).sum(), fullgraph=True)
        q = torch.rand(2, 128, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        attend(q).backward()
        assert q.grad is not None
    assert any("full graphs" in note for note in gpu.notes())


def test_a_full_graph_may_ask_for_the_properties_of_the_device() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * torch.cuda.get_device_properties(x.device).multi_processor_count

    with peakline.virtual_gpu("h200"):
        before = graphs()
        scale = torch.compile(scaled, fullgraph=True)
        assert scale(torch.ones(1024, device="cuda")).shape == (1024,)
        assert graphs() == before + 1


def test_compiled_autograd_asks_for_no_values() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu, torch._dynamo.config.patch(compiled_autograd=True):
        net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()

        @torch.compile
        def train(x: torch.Tensor) -> None:
            net(x).square().mean().backward()

        train(torch.rand(16, 64, device="cuda"))
        assert net[0].weight.grad is not None
    assert not [note for note in gpu.notes() if "nobody can know" in note]


@pytest.mark.filterwarnings("error:.*global hooks on modules")
@pytest.mark.parametrize("fullgraph", [False, True], ids=["", "fullgraph"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "again in backward"])
def test_samples_of_a_compiled_module_are_counted_once_and_without_hooks(
    again: bool, fullgraph: bool
) -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        model = nn.Sequential(nn.Linear(64, 64), nn.GELU()).cuda()
        compiled = torch.compile(model, fullgraph=fullgraph)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.rand(16, 64, device="cuda")
            y = checkpoint(compiled, x, use_reentrant=False) if again else compiled(x)
            y.sum().backward()
            optimizer.step()
    assert gpu.times is not None
    assert gpu.times.inputs.per_step() == {"samples": 16}
