# mypy: disable-error-code="misc,call-arg,call-overload,no-untyped-call,no-any-return"
# ruff: noqa: E501 (layers side by side)
"""Steps for one comparison of predicted and measured times, which nobody had measured when their
predictions were committed: bound by the host, by arithmetic, by memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accuracy.models import Step, hugging_face, tokens, training

MODELS: dict[str, Callable[[str], Step]] = {}


def model(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


# Bound by the host.


@model
def small_encoder_classifier(device: str) -> Step:
    """torch's own encoder over short sentences, with Adam."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
    words, net = nn.Embedding(8000, 256), nn.TransformerEncoder(layer, 8)
    whole = nn.Sequential(words, net).to(device)
    head = nn.Linear(256, 6).to(device)
    optimizer = torch.optim.Adam([*whole.parameters(), *head.parameters()], lr=1e-4)
    ids, kinds = torch.randint(0, 8000, (16, 64), device=device), torch.randint(0, 6, (16,), device=device)  # fmt: skip

    def step() -> None:
        loss = F.cross_entropy(head(whole(ids).mean(1)), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


@model
def message_passing(device: str) -> Step:
    """A graph network: gathered, mixed, and added up at the nodes, ten times."""

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.mix = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))  # fmt: skip
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            told = self.mix(torch.cat([x[edges[0]], x[edges[1]]], 1))
            heard = torch.zeros_like(x).index_add(0, edges[1], told)
            return self.norm(x + heard)

    layers = nn.ModuleList(Layer(128) for _ in range(10)).to(device)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
    x, y = torch.randn(4000, 128, device=device), torch.randn(4000, 128, device=device)
    edges = torch.randint(0, 4000, (2, 24000), device=device)

    def step() -> None:
        h = x
        for layer in layers:
            h = layer(h, edges)
        F.mse_loss(h, y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@model
def q_learning(device: str) -> Step:
    """Eight small updates a step, with a network that follows."""

    def values() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 12)).to(device)  # fmt: skip

    online, slow = values(), values().requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4)
    seen, after = torch.randn(2048, 64, device=device), torch.randn(2048, 64, device=device)
    gain, act = torch.randn(2048, device=device), torch.randint(0, 12, (2048,), device=device)

    def step() -> None:
        for _ in range(8):
            chosen = torch.randint(0, 2048, (256,), device=device)
            with torch.no_grad():
                wanted = gain[chosen] + 0.99 * slow(after[chosen]).amax(1)
            found = online(seen[chosen]).gather(1, act[chosen, None]).squeeze(1)
            loss = F.smooth_l1_loss(found, wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(online.parameters(), 10.0)
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(slow.parameters()), list(online.parameters()), 0.005)

    return step


@model
def temporal_convolutions(device: str) -> Step:
    """Dilated convolutions of one dimension over short series."""

    class Block(nn.Module):
        def __init__(self, width: int, gap: int) -> None:
            super().__init__()
            self.a = nn.Conv1d(width, width, 3, padding=gap, dilation=gap)
            self.b = nn.Conv1d(width, width, 3, padding=gap, dilation=gap)
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x + self.drop(F.relu(self.b(self.drop(F.relu(self.a(x)))))))

    net = nn.Sequential(nn.Conv1d(8, 96, 1), *(Block(96, 2**i) for i in range(8)), nn.Conv1d(96, 8, 1)).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(32, 8, 256, device=device)
    return training(net, optimizer, lambda: F.l1_loss(net(x), x))


@model
def decoder_evaluated(device: str) -> Step:
    """Losses of sixteen small batches, and nothing learnt."""
    import transformers

    config = transformers.GPT2Config(n_layer=12, n_embd=512, n_head=8, vocab_size=16000, use_cache=False)  # fmt: skip
    net = hugging_face("GPT2LMHeadModel", config, torch.bfloat16).to(device).eval()
    data = [tokens(16000, 2, 128, device) for _ in range(16)]

    def step() -> None:
        with torch.no_grad():
            sum(net(**batch).loss.float() for batch in data).item()

    return step


@model
def denoiser_followed(device: str) -> Step:
    """A network of rows that learns to remove noise, and an average of its weights."""

    class Residual(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.body = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            return x + self.body(self.norm(x))

    def rows() -> nn.Module:
        return nn.Sequential(nn.Linear(65, 384), *(Residual(384) for _ in range(14)), nn.Linear(384, 64)).to(device)  # fmt: skip

    net, mean = rows(), rows().requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    x = torch.randn(512, 64, device=device)

    def step() -> None:
        when, noise = torch.rand(512, 1, device=device), torch.randn_like(x)
        loss = F.mse_loss(net(torch.cat([x + when * noise, when], 1)), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(mean.parameters(), net.parameters(), strict=True):
                slow.mul_(0.999).add_(fast, alpha=0.001)

    return step


# Bound by arithmetic.


class Layer(nn.Module):
    """A decoder's, with attention of grouped heads and a gated product."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)  # fmt: skip
        self.up, self.gate = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)  # fmt: skip
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))  # fmt: skip
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@model
def wide_decoder_bf16(device: str) -> Step:
    net = nn.Sequential(nn.Embedding(50000, 3072), *(Layer(3072, 24, 8192) for _ in range(6)), nn.Linear(3072, 50000, bias=False)).to(device, torch.bfloat16)  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, 50000, (4, 1537), device=device)
    return training(net, optimizer, lambda: F.cross_entropy(net(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten()))  # fmt: skip


@model
def long_decoder_autocast(device: str) -> Step:
    net = nn.Sequential(nn.Embedding(20000, 1024), *(Layer(1024, 16, 2816) for _ in range(8)), nn.Linear(1024, 20000, bias=False)).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    ids = torch.randint(0, 20000, (2, 8193), device=device)
    return training(net, optimizer, lambda: F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()), autocast=torch.bfloat16, clip=1.0)  # fmt: skip


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        same = stride == 1 and inputs == 4 * width
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.skip(x) + self.body(x))


@model
def residual_network_channels_last(device: str) -> Step:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
    net = net.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    x = torch.rand(96, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (96,), device=device)
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y), autocast=torch.bfloat16)


@model
def translation_t5(device: str) -> Step:
    import transformers

    config = transformers.T5Config(num_layers=8, d_model=768, d_ff=2048, num_heads=12, vocab_size=32000, decoder_start_token_id=0)  # fmt: skip
    net = hugging_face("T5ForConditionalGeneration", config).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    data = tokens(32000, 16, 256, device)
    return training(net, optimizer, lambda: net(**data).loss, autocast=torch.bfloat16)


# Bound by memory.


@model
def gated_rows_fp32(device: str) -> Step:
    """Norms and elementwise ops over long rows, with few products."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.gain = nn.LayerNorm(width), nn.Parameter(torch.ones(width))

        def forward(self, x: Tensor) -> Tensor:
            y = F.gelu(self.norm(x)) * self.gain
            return x + torch.sigmoid(y) * torch.tanh(y)

    net = nn.Sequential(*(Block(4096) for _ in range(12))).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(8192, 4096, device=device)
    return training(net, optimizer, lambda: net(x).square().mean())


@model
def large_table_adam(device: str) -> Step:
    """Small products beside an optimizer that walks over a large table."""
    net = nn.Sequential(nn.Embedding(400_000, 512), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 400)).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=True)
    ids, kinds = torch.randint(0, 400_000, (64, 128), device=device), torch.randint(0, 400, (64,), device=device)  # fmt: skip
    return training(net, optimizer, lambda: F.cross_entropy(net(ids).mean(1), kinds))


@model
def segmenter_fp32(device: str) -> Step:
    """Convolutions of few channels over large pictures, with batch norms."""

    def pair(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())  # fmt: skip

    down = nn.Sequential(pair(3, 32), nn.MaxPool2d(2), pair(32, 64), nn.MaxPool2d(2), pair(64, 128))
    up = nn.Sequential(nn.Upsample(scale_factor=4), pair(128, 32), nn.Conv2d(32, 5, 1))
    net = nn.Sequential(down, up).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.rand(6, 3, 384, 384, device=device), torch.randint(0, 5, (6, 384, 384), device=device)  # fmt: skip
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y))


@model
def recurrent_language_model(device: str) -> Step:
    """Two layers of cuDNN's LSTM over long sequences."""
    words, head = nn.Embedding(20000, 640).to(device), nn.Linear(640, 20000).to(device)
    lstm = nn.LSTM(640, 640, 2, batch_first=True, dropout=0.2).to(device)
    parameters = [*words.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    ids = torch.randint(0, 20000, (48, 161), device=device)

    def step() -> None:
        said = head(lstm(words(ids[:, :-1]))[0])
        loss = F.cross_entropy(said.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.25)
        optimizer.step()

    return step
