# mypy: disable-error-code="misc,call-arg,no-untyped-call,attr-defined,operator,arg-type,call-overload,union-attr,no-any-return,no-untyped-def,assignment,untyped-decorator"
# ruff: noqa: E501 (what mypy is told)
"""Ten other compiled programs than compiled_models.py's: no rule was made with them.

Predicted without a GPU and committed before any of them was measured.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from accuracy.compiled_models import Step, adamw, ids, training

MODELS: dict[str, Callable[[str], Step]] = {}


def program(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


class Gated(nn.Module):
    """A Llama-like layer: rotated queries, heads that share keys, a gated MLP."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * shared * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        inner = 8 * width // 3 // 64 * 64
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def rotate(self, x: Tensor) -> Tensor:
        rows, half = x.shape[-2], self.size // 2
        rate = 10000 ** (-torch.arange(half, device=x.device) / half)
        angle = torch.arange(rows, device=x.device)[:, None] * rate
        a, b = x.float().chunk(2, dim=-1)
        turned = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
        return torch.cat(turned, dim=-1).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        k, v = self.kv(y).chunk(2, dim=-1)
        q, k = (
            self.rotate(self.split(self.q(y), self.heads)),
            self.rotate(self.split(k, self.shared)),
        )
        y = F.scaled_dot_product_attention(
            q, k, self.split(v, self.shared), is_causal=True, enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, *, outside: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Gated(width, width // 64, width // 256) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.outside = outside

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.outside else layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


@program
def gated_decoder_autocast(device: str) -> Step:
    """float32 weights, bfloat16 by autocast inside the compiled step, an odd vocabulary."""
    model = Decoder(32003, 1024, 6).to(device)
    optimizer, tokens = adamw(model), ids(device, 32003, 6, 768)

    @torch.compile
    def loss_of(batch: Tensor) -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return model(batch)

    def step() -> None:
        loss_of(tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def checkpoints_around_compiled_layers(device: str) -> Step:
    model = Decoder(32000, 1024, 8, outside=True).to(device, torch.bfloat16)
    for layer in model.layers:
        layer.compile(fullgraph=True)
    return training(model, adamw(model), ids(device, 32000, 8, 1024))


@program
def encoder_with_growing_batches(device: str) -> Step:
    """Sizes that Dynamo finds out to be dynamic by itself, with a padding mask."""
    layer = nn.TransformerEncoderLayer(
        768, 12, 3072, dropout=0.1, batch_first=True, norm_first=True
    )
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    batches = iter((8, 12, 16, 12) * 4)

    def step() -> None:
        batch = next(batches)
        x = torch.rand(batch, 384, 768, device=device)
        padding = torch.arange(384, device=device)[None] >= torch.full(
            (batch, 1), 300, device=device
        )
        compiled(x, src_key_padding_mask=padding).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class Patches(nn.Module):
    """A ViT whose position grid is looked up outside of what Dynamo may trace."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 768, 16, 16)
        self.where = nn.Parameter(torch.zeros(1, 14 * 14, 768))
        layer = nn.TransformerEncoderLayer(
            768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True
        )
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(6))
        self.head = nn.Linear(768, 1000)

    @torch._dynamo.disable
    def places(self, x: Tensor) -> Tensor:
        return x + self.where

    def forward(self, images: Tensor) -> Tensor:
        x = self.places(self.embed(images).flatten(2).transpose(1, 2))
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(dim=1))


@program
def vision_half_with_a_break(device: str) -> Step:
    """float16 with a gradient scaler, a graph break behind the first layer."""
    model = Patches().to(device)
    compiled, scaler = torch.compile(model), torch.amp.GradScaler(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.rand(48, 3, 224, 224, device=device), ids(device, 1000, 48)

    def step() -> None:
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(compiled(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def fsdp_mixed_precision(device: str) -> Step:
    """FSDP2 on four (a fake process group): bfloat16 weights, float32 reductions, kept unsharded."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    mesh = init_device_mesh(device, (4,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = Decoder(32000, 1024, 6).to(device)
    for layer in model.layers:
        layer.compile()
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return training(model, adamw(model), ids(device, 32000, 6, 1024))


@program
def convolutions_last_and_compiled_momentum(device: str) -> Step:
    """Residual blocks in channels_last and bfloat16; SGD's own step is compiled."""

    class Residual(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.a, self.b = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
            self.na, self.nb = nn.GroupNorm(16, width), nn.GroupNorm(16, width)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))

    parts = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), Residual(64), nn.Conv2d(64, 128, 3, 2, 1)]
    parts += [Residual(128), nn.Conv2d(128, 256, 3, 2, 1), Residual(256)]
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)]
    model = nn.Sequential(*parts).to(device, torch.bfloat16, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    compiled, update = torch.compile(model), torch.compile(optimizer.step)
    images = torch.rand(96, 3, 192, 192, device=device).to(
        torch.bfloat16, memory_format=torch.channels_last
    )
    labels = ids(device, 100, 96)

    def step() -> None:
        F.cross_entropy(compiled(images).float(), labels).backward()
        update()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def documents_by_flex_attention(device: str) -> Step:
    """flex_attention with a block mask of packed documents."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    width, rows, heads = 1024, 4096, 16
    document = torch.arange(rows, device=device) // 512

    def same(batch, head, query, key):
        return (query >= key) & (document[query] == document[key])

    mask = create_block_mask(same, None, None, rows, rows, device=device)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = (
                nn.LayerNorm(width),
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
            )

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                part.view(*x.shape[:2], heads, -1).transpose(1, 2)
                for part in self.qkv(self.norm(x)).chunk(3, -1)
            )
            y = flex_attention(q, k, v, block_mask=mask)
            return x + self.out(y.transpose(1, 2).flatten(2))

    model = nn.Sequential(*[Layer() for _ in range(5)]).to(device, torch.bfloat16)
    compiled, optimizer = torch.compile(model), adamw(model)
    x = torch.rand(2, rows, width, device=device, dtype=torch.bfloat16)

    def step() -> None:
        compiled(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def mixer_by_cuda_graphs(device: str) -> Step:
    """`mode="reduce-overhead"`: an MLP-Mixer whose batch is copied into the same tensor."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Sequential(nn.Linear(196, 384), nn.GELU(), nn.Linear(384, 196))
            self.columns = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
            self.n1, self.n2 = nn.LayerNorm(512), nn.LayerNorm(512)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.rows(self.n1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.columns(self.n2(x))

    model = nn.Sequential(*[Mixer() for _ in range(6)], nn.Linear(512, 200)).to(device)
    compiled, optimizer = torch.compile(model, mode="reduce-overhead"), adamw(model)
    batch = torch.empty(64, 196, 512, device=device)

    def step() -> None:
        batch.copy_(torch.rand(64, 196, 512).to(device))
        compiled(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def tuned_triton_softmax(device: str) -> Step:
    """A user's kernel under `triton.autotune`, between compiled products."""
    from accuracy.triton_kernels import soft_rows

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ModuleList(nn.Linear(2048, 2048, bias=False) for _ in range(5))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.up:
                x = x + soft_rows(layer(x))
            return x.float().square().mean()

    model = Net().to(device, torch.bfloat16)
    x = torch.rand(6144, 2048, device=device, dtype=torch.bfloat16)
    return training(torch.compile(model), adamw(model), x)


@program
def experts_by_capacity(device: str) -> Step:
    """Eight experts, two for each token, dispatched by products with a one-hot matrix."""

    class Experts(nn.Module):
        def __init__(self, width: int, experts: int) -> None:
            super().__init__()
            self.experts, self.router = experts, nn.Linear(width, experts, bias=False)
            self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)
            self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)

        def forward(self, x: Tensor) -> Tensor:
            tokens, capacity = x.shape[0], x.shape[0] // 4
            weight, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
            picked = F.one_hot(chosen, self.experts).sum(1)
            place = (picked.cumsum(0) - 1) * picked
            slot = F.one_hot(place.clamp(max=capacity - 1), capacity) * picked[..., None]
            send = slot.to(x.dtype)
            share = torch.zeros(tokens, self.experts, device=x.device, dtype=x.dtype).scatter(
                1, chosen, weight
            )
            inside = torch.einsum("tec,tw->ecw", send, x)
            y = torch.bmm(F.gelu(torch.bmm(inside, self.up)), self.down)
            return x + torch.einsum("tec,te,ecw->tw", send, share, y)

    model = nn.Sequential(*[Experts(768, 8) for _ in range(3)]).to(device, torch.bfloat16)
    compiled, optimizer = torch.compile(model), adamw(model)
    x = torch.rand(3072, 768, device=device, dtype=torch.bfloat16)

    def step() -> None:
        compiled(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
