"""Every situation works, or is refused with one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.autograd.variable import Variable
from torch.optim import optimizer as optimizer_module
from torch.utils.data import DataLoader, TensorDataset

import peakline
from track_models import Net, parameter_bytes, train_step


def state_of_torch() -> tuple[object, ...]:
    """What tracking replaces, to be found again afterwards."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return (
        Variable._execution_engine,
        FakeTensorMode.__torch_dispatch__,
        FakeTensorMode.from_tensor,
        "__init_subclass__" in vars(nn.Module),
        nn.Module.__call__,
        dict(optimizer_module._global_optimizer_pre_hooks),
        dict(optimizer_module._global_optimizer_post_hooks),
        dict(nn.modules.module._global_forward_hooks),
        torch._C._profiler._RecordFunctionFast is not None,
        torch.autograd._profiler_enabled(),
    )


def assert_untracked() -> None:
    """Nothing of the last run is left: another can start, and allocations go nowhere."""
    with peakline.track() as run:
        torch.empty(7, dtype=torch.uint8)
    assert run.peak("cpu").bytes == 7


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_torch_as_it_was(error: type[BaseException]) -> None:
    before = state_of_torch()
    model = Net()

    def fail() -> None:
        model(torch.randn(8, 64))
        raise error

    with pytest.raises(error), peakline.track(model) as run:
        fail()
    assert state_of_torch() == before
    assert run.peak("cpu").bytes > 0
    assert_untracked()


def test_an_exception_inside_forward_leaves_its_modules() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.fail = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.inner(x)
            if self.fail:
                raise ValueError("as the test wants")
            return x

    model = Fails()
    with peakline.track(model) as run:
        with pytest.raises(ValueError, match="as the test wants"):
            model(torch.randn(2, 4))
        model.fail = False
        model(torch.randn(2, 4))
    assert run.warnings == []
    assert {row.path: row.forward_calls for row in run.modules()}["Fails"] == 2


def test_an_exception_inside_backward_ends_the_phase() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            raise ValueError("as the test wants")

    with peakline.track() as run:
        x = torch.randn(4, requires_grad=True)
        with pytest.raises(ValueError, match="as the test wants"):
            Bad.apply(x).sum().backward()
        torch.empty(10_000, dtype=torch.uint8)
    assert run.peak("cpu").phase == "forward"
    assert run.warnings == []


def test_an_exception_inside_an_optimizer_step_ends_with_the_next_one() -> None:
    class Fails(torch.optim.SGD):
        fail = True

        def step(self, closure: object = None) -> None:  # type: ignore[override]
            if self.fail:
                raise ValueError("as the test wants")
            super().step()

    model = nn.Linear(4, 4)
    optimizer = Fails(model.parameters(), lr=0.1)
    with peakline.track(model, optimizer) as run:
        model(torch.randn(2, 4)).sum().backward()
        with pytest.raises(ValueError, match="as the test wants"):
            optimizer.step()
        optimizer.fail = False
        optimizer.step()
    assert run.warnings == []
    assert len(run.steps) >= 1


def test_two_trackers_nested_are_refused_with_a_sentence() -> None:
    with peakline.track() as outer:
        torch.empty(3, dtype=torch.uint8)
        with pytest.raises(RuntimeError, match=r"already tracking.*leave the first"):
            peakline.track().__enter__()
        torch.empty(5, dtype=torch.uint8)
    assert outer.peak("cpu").bytes == 5
    assert_untracked()


def test_what_is_not_a_model_is_refused_with_a_sentence() -> None:
    with pytest.raises(TypeError, match=r"track\(model=…\) takes.*got a int"):
        peakline.track(model=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"track\(optimizer=…\) takes.*got a Linear"):
        peakline.track(optimizer=[nn.Linear(1, 1)])  # type: ignore[list-item]


def test_the_profiler_runs_inside_and_around() -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with peakline.track() as run:
        with torch.profiler.profile(activities=activities, profile_memory=True) as prof:
            torch.empty(1000, dtype=torch.uint8)
        torch.empty(500, dtype=torch.uint8)
    assert run.peak("cpu").bytes == 1000
    assert any(e.key == "aten::empty" for e in prof.key_averages())
    around = torch.profiler.profile(activities=activities, profile_memory=True)
    with around as prof, peakline.track() as run:
        torch.empty(2000, dtype=torch.uint8)
    assert run.peak("cpu").bytes == 2000
    assert any(e.key == "aten::empty" for e in prof.key_averages())


def test_gradient_accumulation_keeps_one_gradient() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with peakline.track(model, optimizer) as run:
        for _ in range(3):
            model(torch.randn(8, 64)).sum().backward()
        torch.empty(20_000_000, dtype=torch.uint8)
        optimizer.step()
    assert run.peak("cpu").by_category["Gradient"] == parameter_bytes(model)
    assert len(run.steps) == 1


def test_retain_graph_and_a_second_backward() -> None:
    model = Net()
    with peakline.track(model) as run:
        loss = model(torch.randn(8, 64)).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert run.warnings == []
    assert run.peak("cpu").phase == "backward"


def test_gradients_of_gradients() -> None:
    with peakline.track() as run:
        x = torch.randn(100, requires_grad=True)
        (g,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        g.sum().backward()
    assert run.warnings == []


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_inference_has_modules_ops_and_what_modules_hand_on_as_activations(
    mode: Callable[[], object],
) -> None:
    model = Net()
    model.eval()
    with peakline.track(model) as run, mode():  # type: ignore[attr-defined]
        model(torch.randn(64, 64))
    assert run.peak("cpu").module.startswith("Net")
    assert run.peak("cpu").op.startswith("aten::")
    found = run.peak("cpu").by_category
    assert found["Activation"] >= 2 * 64 * 256 * 4  # what one layer made of it, and the next
    assert found.get("Temp", 0) == 0


def test_other_threads_are_seen() -> None:
    kept = []

    def work() -> None:
        kept.append(torch.empty(123_456, dtype=torch.uint8))

    with peakline.track() as run:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert run.peak("cpu").bytes == 123_456
    assert run.peak("cpu").op == "aten::empty"


def test_many_threads_at_once_lose_nothing() -> None:
    def work(size: int) -> None:
        for _ in range(500):
            x = torch.empty(size, dtype=torch.uint8)
            y = torch.empty(size, dtype=torch.uint8)
            del x, y

    with peakline.track() as run:
        held = torch.empty(1 << 20, dtype=torch.uint8)
        threads = [threading.Thread(target=work, args=(1000 + i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = torch.empty(1 << 22, dtype=torch.uint8)
    assert run.warnings == []
    assert run.peak("cpu").bytes == held.nbytes + end.nbytes


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_workers_do_not_write_into_the_recording(workers: int) -> None:
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 8))
    model = nn.Linear(8, 8)
    with peakline.track(model) as run:
        for x, y in DataLoader(data, batch_size=16, num_workers=workers):
            (model(x) - y).square().mean().backward()
    assert {row.path: row.forward_calls for row in run.modules()}["Linear"] == 4
    assert run.warnings == []


def test_a_forked_child_neither_records_nor_hangs() -> None:
    with peakline.track() as run:
        held = torch.empty(1000, dtype=torch.uint8)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.empty(1 << 20, dtype=torch.uint8)
                run.__class__  # noqa: B018
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert run.peak("cpu").bytes == held.nbytes


def test_a_forked_child_may_leave_the_block() -> None:
    block = peakline.track()
    run = block.__enter__()
    held = torch.empty(1000, dtype=torch.uint8)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            block.__exit__(None, None, None)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    torch.empty(2000, dtype=torch.uint8)
    block.__exit__(None, None, None)
    assert run.peak("cpu").bytes == 3000
    del held


def test_sparse_gradients_are_gradients() -> None:
    model = nn.Embedding(100, 16, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    with peakline.track(model, optimizer) as run:
        model(torch.arange(10)).sum().backward()
        grad = model.weight.grad
        assert grad is not None
        expected = grad._values().untyped_storage().nbytes()
        expected += grad._indices().untyped_storage().nbytes()
        torch.empty(10_000_000, dtype=torch.uint8)
        optimizer.step()
    assert run.peak("cpu").by_category["Gradient"] == expected
    assert run.warnings == []


def test_nested_tensors_are_seen() -> None:
    with peakline.track() as run:
        parts = [torch.randn(3, 8), torch.randn(5, 8)]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        linear = nn.Linear(8, 8)
        linear(nested).values().sum().backward()
    assert run.peak("cpu").bytes > 8 * 8 * 4 * 2
    assert run.warnings == []


def test_quantised_tensors_are_seen() -> None:
    with peakline.track() as run:
        x = torch.randn(1000)
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        torch.empty(100_000, dtype=torch.uint8)
    assert run.peak("cpu").bytes == 4000 + 1000 + 100_000
    del q


def test_a_compiled_model_is_tracked_without_disturbing_its_compilation() -> None:
    torch._dynamo.reset()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    train_step(compiled, optimizer)
    with peakline.track(compiled, optimizer) as run:
        for _ in range(2):
            train_step(compiled, optimizer)
    assert len(run.steps) == 2
    assert run.peak("cpu").by_category["Parameter"] == parameter_bytes(model)
    assert next(row.path for row in run.modules(depth=0)) == "Net"
    assert run.warnings == []


def test_what_a_compiled_model_allocates_is_its_modules_own() -> None:
    torch._dynamo.reset()
    model = Net()
    compiled = torch.compile(model, backend="aot_eager")
    with peakline.track(model) as run:
        compiled(torch.randn(8, 64)).sum().backward()
    assert [row.path for row in run.modules(depth=0)] == ["Net"]
    assert run.modules(depth=0)[0].forward_calls == 1


def test_compiling_inside_the_block_counts_no_fake_memory() -> None:
    torch._dynamo.reset()
    model = Net()
    with peakline.track(model) as run:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        compiled(torch.randn(8, 64)).sum().backward()
    eager = Net()
    with peakline.track(eager) as plain:
        eager(torch.randn(8, 64)).sum().backward()
    # The graph of a compiled model may keep other tensors, but nothing like a second set.
    assert run.peak("cpu").bytes < 2 * plain.peak("cpu").bytes
    assert run.warnings == []


def test_modules_are_seen_also_after_torch_fx_has_traced() -> None:
    net = Net()
    with peakline.track(net) as run:
        torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
        net(torch.rand(4, 64))
    (root,) = [use for use in run.modules() if use.path == "Net"]
    assert root.forward_calls == 1


def test_a_thousand_steps_keep_host_memory_flat() -> None:
    import resource

    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 8)

    def steps(count: int) -> int:
        for _ in range(count):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with peakline.track(model, optimizer) as run:
        early = steps(300)
        late = steps(700)
    assert len(run.steps) == 1000
    assert late - early < 4 * 1024  # KiB


def test_without_op_names_everything_else_stays() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    peaks = []
    for ops in (True, False):
        with peakline.track(model, optimizer, ops=ops) as run:
            train_step(model, optimizer)
            train_step(model, optimizer)
        peaks.append(run.peak("cpu"))
    assert peaks[0].op.startswith("aten::")
    assert peaks[1].op == ""
    assert peaks[0].bytes == peaks[1].bytes or len({p.bytes for p in peaks}) <= 2
    assert peaks[1].by_category["Gradient"] == peaks[0].by_category["Gradient"]
    assert peaks[1].module == peaks[0].module


@pytest.mark.parametrize("module", ["peakline.mem_tracker", "torch.distributed._tools.mem_tracker"])
@pytest.mark.parametrize("around", [True, False])
def test_other_trackers_run_inside_and_around(module: str, around: bool) -> None:
    import importlib

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    other = importlib.import_module(module).MemTracker()
    other.track_external(model, optimizer)
    ours = peakline.track(model, optimizer)
    if around:
        with other, ours as run:
            step()
    else:
        with ours as run, other:
            step()
    total = other.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert run.warnings == []
    # Upstream does not see what kernels allocate for a moment.
    assert total <= run.peak("cpu").bytes <= total + 64


def test_lazy_modules_are_parameters_once_they_know_their_size() -> None:
    model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(4))
    with peakline.track(model) as run:
        model(torch.randn(4, 8)).sum().backward()
        torch.empty(1_000_000, dtype=torch.uint8)
    assert run.peak("cpu").by_category["Parameter"] == parameter_bytes(model)
    assert run.peak("cpu").by_category["Gradient"] == parameter_bytes(model)


def test_an_optimizer_that_runs_the_model_itself() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    with peakline.track(model, optimizer) as run:
        optimizer.step(closure)
        optimizer.step(closure)
    assert len(run.steps) == 2
    assert run.warnings == []


def test_the_first_tracking_of_a_process_sees_what_was_there_before_go_away() -> None:
    script = """
import torch, peakline
model = torch.nn.Linear(64, 64, bias=False)
with peakline.track(model) as run:
    model.weight.data = model.weight.data - 1.0
print(run.timeline("cpu")[-1].lowest, run.warnings)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{64 * 64 * 4} []\n"
