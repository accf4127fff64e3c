"""C++ programs that train with libtorch, against the same programs in Python."""

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import peakline
from peakline.run import Run

ROOT = Path(__file__).parents[2]
STEPS = 3


def program(name: str) -> str:
    """Built by `make cpp`, as a stranger's project would be."""
    path = ROOT / "build" / "cpp" / "programs" / name
    if not path.exists():
        pytest.skip(f"{name} is not built: make cpp")
    return str(path)


def run_cpp(name: str, *words: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PEAKLINE_CUDNN": "off"}
    done = subprocess.run(
        [program(name), *words], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        parts = parts.permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """As examples/cpp/gpt.h has it."""

    def __init__(self, vocabulary: int = 8192, length: int = 128, width: int = 256) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 1000)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


def libtorch_linear(self: nn.Linear, x: Tensor) -> Tensor:
    """What torch::nn::Linear computes: Python's calls addmm for three dimensions as well."""
    if x.dim() == 2 and self.bias is not None:
        return torch.addmm(self.bias, x, self.weight.t())
    y = x.matmul(self.weight.t())
    return y if self.bias is None else y.add_(self.bias)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def words(batch: int, length: int, vocabulary: int) -> Callable[[str], tuple[Tensor, Tensor]]:
    def draw(device: str) -> tuple[Tensor, Tensor]:
        inputs = torch.randint(vocabulary, (batch, length), device=device)
        return inputs, torch.randint(vocabulary, (batch, length), device=device)

    return draw


def images(device: str) -> tuple[Tensor, Tensor]:
    return torch.randn(8, 3, 32, 32, device=device), torch.randint(10, (8,), device=device)


def ops_loss(model: nn.Module, inputs: Tensor) -> Tensor:
    """Ops whose shape functions torch has in Python only."""
    aten = torch.ops.aten
    y = model(inputs)
    for op in (aten.hardswish, aten.hardtanh, aten.mish):
        y = op(y)
    y = y.flip(0)
    y = y.roll(1, 0)
    y = torch.where(y > 0, y, y * 0.5)
    scale = y.std(1, True, keepdim=True)
    y = y / scale
    y = aten.adaptive_avg_pool2d(y.view(16, 1, 8, 8), [4, 4])
    zero = torch.zeros_like(y)
    squares = aten.mse_loss(y, zero)
    both = squares + aten.huber_loss(y, zero)
    return both + aten.binary_cross_entropy(y.sigmoid(), zero)


MODELS = {
    "gpt": (GPT, words(8, 128, 8192)),
    "cnn": (cnn, images),
    "lstm": (Lstm, words(4, 32, 1000)),
}
ON_A_GPU = {
    **MODELS,
    "gpt_bfloat16": (lambda: GPT().bfloat16(), words(8, 128, 8192)),
    "ops": (lambda: nn.Linear(64, 64), lambda device: (torch.randn(16, 64, device=device), None)),
}


def python_run(name: str, device: str, optimizer_name: str = "sgd") -> Run:
    make, draw = ON_A_GPU[name]

    def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
        if optimizer_name == "adamw":  # C++'s steps one tensor at a time
            return torch.optim.AdamW(model.parameters(), foreach=False)
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(STEPS):
            inputs, targets = draw(device)
            optimizer.zero_grad()
            if name.startswith("gpt"):
                scores = model(inputs)
                loss = cross_entropy(scores.view(-1, scores.shape[-1]), targets.view(-1))
            elif name == "ops":
                loss = ops_loss(model, inputs)
            else:
                loss = cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
            loss.backward()
            optimizer.step()
            # C++ holds a step's tensors to the end of its block, and no longer.
            inputs = targets = scores = loss = None

    if device == "cuda":
        with peakline.virtual_gpu("h200") as run:
            model = make().to(device)
            train(model, make_optimizer(model))
        return run
    model = make()
    optimizer = make_optimizer(model)
    with peakline.track(model, optimizer) as run:
        train(model, optimizer)
    return run


def cpp_run(name: str, device: str, folder: Path, optimizer: str = "sgd") -> Run:
    path = str(folder / "cpp.peak")
    if name.startswith("gpt"):
        where = ("--gpu", "h200", "--record", path) if device == "cuda" else ("--track", path)
        dtype = "bfloat16" if name == "gpt_bfloat16" else "float32"
        run_cpp("train_gpt", "--optimizer", optimizer, "--dtype", dtype, *where)
    else:
        run_cpp("programs", name, device, path)
    return peakline.load(path)


def rows(run: Run, device: str) -> list[tuple[object, ...]]:
    return [
        (row.path, row.type, row.peak, row.by_category, row.forward_calls)
        for row in run.modules(device=device)
    ]


@pytest.mark.parametrize("name", list(MODELS))
def test_a_tracked_cpp_program_has_the_numbers_of_the_same_program_in_python(
    name: str, tmp_path: Path
) -> None:
    ours, theirs = cpp_run(name, "cpu", tmp_path), python_run(name, "cpu")
    assert ours.peak("cpu").by_category == theirs.peak("cpu").by_category
    assert ours.peak("cpu").bytes == theirs.peak("cpu").bytes
    assert [step.peak_allocated for step in ours.steps] == [
        step.peak_allocated for step in theirs.steps
    ]
    assert len(ours.steps) == STEPS
    assert rows(ours, "cpu") == rows(theirs, "cpu")
    assert not ours.warnings


@pytest.mark.parametrize("name", list(ON_A_GPU))
def test_a_cpp_program_on_a_virtual_gpu_has_the_numbers_of_the_same_program_in_python(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEAKLINE_CUDNN", "off")
    monkeypatch.setattr(nn.Linear, "forward", libtorch_linear)
    ours, theirs = cpp_run(name, "cuda", tmp_path), python_run(name, "cuda")
    assert ours.peak("cuda").by_category == theirs.peak("cuda").by_category
    assert [(step.peak_allocated, step.peak_reserved) for step in ours.steps] == [
        (step.peak_allocated, step.peak_reserved) for step in theirs.steps
    ]
    assert len(ours.steps) == STEPS


def test_adamw_differs_by_the_step_counters_that_python_keeps_as_tensors(tmp_path: Path) -> None:
    ours, theirs = cpp_run("gpt", "cpu", tmp_path, "adamw"), python_run("gpt", "cpu", "adamw")
    expected = dict(theirs.peak("cpu").by_category)
    expected["Optstate"] -= 4 * len(list(GPT().parameters()))
    assert ours.peak("cpu").by_category == expected


def test_modules_and_optimizers_of_ones_own_are_seen_by_the_line_that_notes_them(
    tmp_path: Path,
) -> None:
    run = cpp_run("own", "cpu", tmp_path)
    assert [(row.path, row.forward_calls) for row in run.modules(device="cpu")] == [
        ("Sequential", 3), ("Sequential.0", 3), ("Sequential.1", 3),
    ]  # fmt: skip
    assert len(run.steps) == 3


def test_modules_that_torchs_own_modules_call_are_seen(tmp_path: Path) -> None:
    run = cpp_run("encoder", "cpu", tmp_path)
    calls = {row.path: row.forward_calls for row in run.modules(device="cpu")}
    inside = ("self_attn", "linear1", "linear2", "norm1", "norm2")
    for layer in (f"TransformerEncoder.layers.{i}" for i in range(2)):
        assert [calls[f"{layer}.{name}"] for name in inside] == [3] * len(inside)


def test_a_second_tracker_is_refused_with_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [program("programs"), "two", "cpu", str(tmp_path / "two.peak")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "stop the first Tracker or VirtualGpu" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_full_disk_costs_the_tracking_and_the_program_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [program("programs"), "cnn", "cpu", str(tmp_path / "full.peak")],
        capture_output=True, text=True, check=False, restore_signals=False,  # SIGXFSZ is ignored
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("peakline has turned tracking off, and the run goes on") == 1
    assert "not all was tracked: cannot write" in done.stdout


def test_steps_without_an_optimizer_are_told_by_the_parameters(tmp_path: Path) -> None:
    run = cpp_run("guessed", "cpu", tmp_path)
    assert len(run.steps) == 3  # as in Python: nobody says that the last of the four is over


def test_memory_that_runs_out_is_an_error_that_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [program("train_gpt"), "--gpu", "h200", "--memory", "64MiB"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "CUDA out of memory" in done.stderr


def test_the_library_needs_no_python() -> None:
    linked = subprocess.run(
        ["ldd", program("train_gpt")], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split()[0] for line in linked.splitlines()]
    assert any(name.startswith("libpeakline_torch") for name in names)
    assert not [name for name in names if "python" in name]
