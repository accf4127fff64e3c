# mypy: disable-error-code="misc,call-arg,no-untyped-call"
"""Training steps other than single ops: measured on a GPU, predicted without one.

Each builder takes the device and returns the step to call. Weights are random; nothing is
downloaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], None]
MODELS: dict[str, Callable[[str], Step]] = {}


def model(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


def training(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[], Tensor],
    autocast: torch.dtype | None = None,
    scaler: Any = None,
    clip: float | None = None,
) -> Step:
    def step() -> None:
        context = torch.autocast("cuda", dtype=autocast) if autocast else contextlib.nullcontext()
        with context:
            value = loss()
        (scaler.scale(value) if scaler else value).backward()
        if scaler and clip:
            scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def hugging_face(name: str, config: Any, dtype: torch.dtype = torch.float32) -> nn.Module:
    import transformers

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        made: nn.Module = getattr(transformers, name)(config)
    finally:
        torch.set_default_dtype(before)
    return made.train()


def tokens(vocabulary: int, batch: int, length: int, device: str) -> dict[str, Tensor]:
    ids = torch.randint(0, vocabulary, (batch, length), device=device)
    return {"input_ids": ids, "labels": ids.clone()}


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.a, self.na = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.b = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.nb = nn.BatchNorm2d(width)
        self.c, self.nc = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.skip = (
            nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )
            if stride != 1 or inputs != 4 * width
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.na(self.a(x)), inplace=True)
        y = F.relu(self.nb(self.b(y)), inplace=True)
        return F.relu(self.nc(self.c(y)) + self.skip(x), inplace=True)


def resnet() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resnet_step(device: str, channels_last: bool, autocast: torch.dtype | None) -> Step:
    with torch.device(device):
        net = resnet()
    x = torch.rand(32, 3, 224, 224, device=device)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (32,), device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y), autocast)


@model
def resnet50(device: str) -> Step:
    return resnet_step(device, channels_last=False, autocast=None)


@model
def resnet50_channels_last_bf16(device: str) -> Step:
    return resnet_step(device, channels_last=True, autocast=torch.bfloat16)


@model
def t5_small(device: str) -> Step:
    from transformers import T5Config

    with torch.device(device):
        net = hugging_face(
            "T5ForConditionalGeneration", T5Config(use_cache=False, decoder_start_token_id=0)
        )
    batch = tokens(32128, 16, 256, device)
    return training(net, torch.optim.AdamW(net.parameters()), lambda: net(**batch).loss)


@model
def llama_gqa_fp16(device: str) -> Step:
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=4, vocab_size=32000, max_position_embeddings=1024, use_cache=False,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    with torch.device(device):
        net = hugging_face("LlamaForCausalLM", config)
    batch = tokens(32000, 4, 1024, device)
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(**batch).loss, torch.float16, scaler, clip=1.0)


@model
def llama_eager_attention(device: str) -> Step:
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12,
        num_key_value_heads=12, vocab_size=32000, max_position_embeddings=512, use_cache=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    with torch.device(device):
        net = hugging_face("LlamaForCausalLM", config, torch.bfloat16)
    batch = tokens(32000, 8, 512, device)
    return training(net, torch.optim.SGD(net.parameters(), lr=0.1), lambda: net(**batch).loss)


class MixerBlock(nn.Module):
    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.t = nn.Sequential(nn.Linear(length, 256), nn.GELU(), nn.Linear(256, length))
        self.c = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.t(self.n1(x).transpose(1, 2)).transpose(1, 2)
        out: Tensor = x + self.c(self.n2(x))
        return out


@model
def mlp_mixer(device: str) -> Step:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 512, 16, 16)
            self.blocks = nn.Sequential(*(MixerBlock(196, 512) for _ in range(8)))
            self.head = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 1000))

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.stem(x).flatten(2).transpose(1, 2)
            out: Tensor = self.head(self.blocks(tokens).mean(1))
            return out

    with torch.device(device):
        net = Mixer()
    x, y = torch.rand(64, 3, 224, 224, device=device), torch.randint(0, 1000, (64,), device=device)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y), torch.bfloat16)


class Experts(nn.Module):
    """Top-2 routing without a fixed capacity: every expert gets the tokens that chose it."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weights, chosen = self.gate(flat).softmax(-1).topk(2, -1)
        per_expert = chosen.flatten().argsort().chunk(len(self.experts))  # equal shares
        out = torch.zeros_like(flat)
        for expert, slots in zip(self.experts, per_expert, strict=True):
            rows = slots // 2
            scale = weights.flatten()[slots].unsqueeze(-1)
            out = out.index_add(0, rows, expert(flat[rows]) * scale)
        return out.view_as(x)


@model
def mixture_of_experts(device: str) -> Step:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Embedding(16000, 512)
            self.blocks = nn.ModuleList(Experts(512, 8) for _ in range(4))
            self.norms = nn.ModuleList(nn.RMSNorm(512) for _ in range(4))
            self.h = nn.Linear(512, 16000, bias=False)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.e(ids)
            for norm, block in zip(self.norms, self.blocks, strict=True):
                x = x + block(norm(x))
            out: Tensor = self.h(x)
            return out

    with torch.device(device):
        net = Net()
    ids = torch.randint(0, 16000, (8, 512), device=device)
    optimizer = torch.optim.AdamW(net.parameters())
    return training(net, optimizer, lambda: F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()))


@model
def gru_speech(device: str) -> Step:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Conv1d(80, 256, 5, 2, 2)
            self.r = nn.GRU(256, 512, 3, batch_first=True, bidirectional=True, dropout=0.2)
            self.h = nn.Linear(1024, 500)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.c(x)).transpose(1, 2)
            out: Tensor = self.h(self.r(x)[0])
            return out

    with torch.device(device):
        net = Net()
    x = torch.rand(24, 80, 400, device=device)
    y = torch.randint(0, 500, (24 * 200,), device=device)
    optimizer = torch.optim.Adam(net.parameters())
    return training(net, optimizer, lambda: F.cross_entropy(net(x).flatten(0, 1), y), clip=5.0)


class AttentionBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.n = nn.GroupNorm(32, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        qkv = self.qkv(self.n(x)).view(b, 3, 8, c // 8, h * w).transpose(3, 4)
        q, k, v = qkv.unbind(1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(b, c, h, w)
        out: Tensor = x + self.out(y)
        return out


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, width, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(32, width), nn.Conv2d(width, width, 3, padding=1)
        self.t = nn.Linear(256, width)
        self.skip = nn.Conv2d(inputs, width, 1) if inputs != width else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.c1(F.silu(self.n1(x))) + self.t(time)[:, :, None, None]
        out: Tensor = self.skip(x) + self.c2(F.dropout(F.silu(self.n2(y)), 0.1))
        return out


@model
def diffusion_unet(device: str) -> Step:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.i = nn.Conv2d(4, 128, 3, padding=1)
            self.d1, self.d2, self.d3 = (
                ResidualBlock(128, 128),
                ResidualBlock(128, 256),
                ResidualBlock(256, 384),
            )
            self.a2, self.a3 = AttentionBlock(256), AttentionBlock(384)
            self.s1, self.s2 = nn.Conv2d(128, 128, 3, 2, 1), nn.Conv2d(256, 256, 3, 2, 1)
            self.u2, self.u1 = ResidualBlock(384 + 256, 256), ResidualBlock(256 + 128, 128)
            self.o = nn.Sequential(
                nn.GroupNorm(32, 128), nn.SiLU(), nn.Conv2d(128, 4, 3, padding=1)
            )

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            x1 = self.d1(self.i(x), time)
            x2 = self.a2(self.d2(self.s1(x1), time))
            y = self.a3(self.d3(self.s2(x2), time))
            y = self.u2(torch.cat([F.interpolate(y, scale_factor=2), x2], 1), time)
            y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), x1], 1), time)
            out: Tensor = self.o(y)
            return out

    with torch.device(device):
        net = Net()
    x, time = torch.randn(8, 4, 64, 64, device=device), torch.randn(8, 256, device=device)
    optimizer = torch.optim.AdamW(net.parameters())
    return training(net, optimizer, lambda: F.mse_loss(net(x, time), x), torch.bfloat16)


@model
def gpt2_fused_checkpointed(device: str) -> Step:
    from transformers import GPT2Config

    with torch.device(device):
        net = hugging_face("GPT2LMHeadModel", GPT2Config(use_cache=False))
    net.gradient_checkpointing_enable(  # type: ignore[operator]
        gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    batch = tokens(50257, 4, 1024, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    return training(net, optimizer, lambda: net(**batch).loss, torch.bfloat16)


@model
def encoder_decoder_padded(device: str) -> Step:
    """torch.nn's own transformer with padding masks, and an embedding that has a padding index."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Embedding(12000, 384, padding_idx=0)
            self.t = nn.Transformer(384, 6, 3, 3, 1536, batch_first=True)
            self.h = nn.Linear(384, 12000)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            causal = nn.Transformer.generate_square_subsequent_mask(b.shape[1], device=b.device)
            y = self.t(self.e(a), self.e(b), tgt_mask=causal, src_key_padding_mask=a == 0)
            out: Tensor = self.h(y)
            return out

    with torch.device(device):
        net = Net()
    a = torch.randint(0, 12000, (16, 200), device=device)
    b = torch.randint(0, 12000, (16, 180), device=device)
    optimizer = torch.optim.Adam(net.parameters())
    return training(net, optimizer, lambda: F.cross_entropy(net(a, b).flatten(0, 1), b.flatten()))
