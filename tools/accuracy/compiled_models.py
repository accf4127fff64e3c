# mypy: disable-error-code="misc,call-arg,no-untyped-call,attr-defined,operator,arg-type,call-overload,union-attr,no-any-return,no-untyped-def"
# ruff: noqa: E501 (what mypy is told)
"""Ten compiled programs' steps: dynamic shapes, a graph break, checkpointing, FSDP2, a compiled
optimizer, flex_attention, CUDA graphs, a Triton kernel, padded products, convolutions.

Predicted without a GPU and committed before any of them was measured.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Step = Callable[[], object]
MODELS: dict[str, Callable[[str], Step]] = {}


def program(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        q, k, v = (
            part.view(batch, rows, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(batch, rows, width))
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        width: int,
        layers: int,
        block: Callable[[int, int], nn.Module] = Block,
        *,
        checkpoints: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(block(width, width // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpoints = checkpoints

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


def training(model: nn.Module, optimizer: torch.optim.Optimizer, *inputs: Tensor) -> Step:
    def step() -> None:
        model(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def ids(device: str, vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(0, vocabulary, shape, device=device)


@program
def language_autocast_padded(device: str) -> Step:
    """50,257 columns under autocast: Inductor measures, and pads the product."""
    model = Language(50257, 768, 6).to(device)
    compiled, optimizer, tokens = torch.compile(model), adamw(model), ids(device, 50257, 8, 512)

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = compiled(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def language_checkpointed(device: str) -> Step:
    """Every block recomputed, inside the compiled region."""
    model = Language(32000, 1024, 8, checkpoints=True).to(device, torch.bfloat16)
    return training(torch.compile(model), adamw(model), ids(device, 32000, 8, 1024))


@program
def dynamic_rows(device: str) -> Step:
    """Batches of another length in every step."""
    model = Language(32000, 768, 6).to(device, torch.bfloat16)
    compiled, optimizer = torch.compile(model, dynamic=True), adamw(model)
    lengths = iter((512, 1024, 768, 1024, 512, 768) * 4)

    def step() -> None:
        compiled(ids(device, 32000, 8, next(lengths))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class Broken(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        torch._dynamo.graph_break()
        return x * 1.5


@program
def graph_breaks(device: str) -> Step:
    """A break behind every block."""
    model = Language(32000, 768, 4, Broken).to(device, torch.bfloat16)
    return training(torch.compile(model), adamw(model), ids(device, 32000, 8, 1024))


@program
def compiled_optimizer(device: str) -> Step:
    """Model and optimizer compiled, apart."""
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(2048, 8192), nn.SiLU(), nn.Linear(8192, 2048)) for _ in range(4)]
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled, update = torch.compile(model), torch.compile(optimizer.step)
    x = torch.rand(4096, 2048, device=device)

    def step() -> None:
        compiled(x).square().mean().backward()
        update()
        optimizer.zero_grad(set_to_none=True)

    return step


class Flexible(Block):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        def soft(score, batch, head, query, key):
            return torch.where(query >= key, score, -float("inf"))

        return flex_attention(q, k, v, score_mod=soft)


@program
def flexible_attention(device: str) -> Step:
    model = Language(32000, 1024, 6, Flexible).to(device, torch.bfloat16)
    return training(torch.compile(model), adamw(model), ids(device, 32000, 4, 2048))


@program
def reduced_overhead(device: str) -> Step:
    """cudagraph trees: warmed up, recorded, replayed."""
    model = Language(32000, 768, 4).to(device, torch.bfloat16)
    compiled = torch.compile(model, mode="reduce-overhead")
    return training(compiled, adamw(model), ids(device, 32000, 8, 1024))


@program
def fsdp_blocks(device: str) -> Step:
    """FSDP2 over one rank's share of eight (a fake process group), blocks compiled."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    mesh = init_device_mesh(device, (8,))
    model = Language(32000, 1024, 6).to(device, torch.bfloat16)
    for block in model.blocks:
        block.compile()
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return training(model, adamw(model), ids(device, 32000, 8, 1024))


@program
def own_triton_kernel(device: str) -> Step:
    """A Triton kernel in an autograd function, inside a compiled region."""
    from accuracy.triton_kernels import scaled

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4096, 4096) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = scaled(layer(x).relu())
            return x.float().square().mean()

    model = Net().to(device, torch.bfloat16)
    return training(
        torch.compile(model), adamw(model), torch.rand(8192, 4096, device=device).bfloat16()
    )


@program
def convolutions(device: str) -> Step:
    def layer(a: int, b: int, stride: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()
        )

    widths = [(3, 64, 2), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    model = nn.Sequential(*[layer(*shape) for shape in widths]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    compiled, x = torch.compile(model), torch.rand(64, 3, 224, 224, device=device)

    def step() -> None:
        compiled(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
