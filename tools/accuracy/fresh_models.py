# mypy: disable-error-code="misc,call-arg,no-untyped-call,call-overload"
# ruff: noqa: E501 (layers side by side)
"""Training steps that were predicted before they were measured, of other architectures than those
in models.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accuracy.models import Step, hugging_face, tokens, training

MODELS: dict[str, Callable[[str], Step]] = {}


def model(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, grow: int) -> None:
        super().__init__()
        wide = inputs * grow
        self.same = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.same else y


@model
def mobilenet(device: str) -> Step:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)]
    width = 32
    for outputs, count, stride in ((24, 2, 2), (40, 3, 2), (96, 3, 2), (160, 3, 2)):
        for i in range(count):
            layers.append(InvertedResidual(width, outputs, stride if i == 0 else 1, 6))
            width = outputs
    with torch.device(device):
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
        net = net.to(device)
        x, y = torch.rand(48, 3, 192, 192), torch.randint(0, 1000, (48,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y))


@model
def swin_bf16(device: str) -> Step:
    from transformers import SwinConfig

    config = SwinConfig(image_size=224, embed_dim=64, depths=[2, 2, 4, 2], num_heads=[2, 4, 8, 16])
    config.num_labels = 200
    with torch.device(device):
        net = hugging_face("SwinForImageClassification", config)
        x, y = torch.rand(24, 3, 224, 224), torch.randint(0, 200, (24,))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(pixel_values=x, labels=y).loss, torch.bfloat16)


@model
def whisper_bf16(device: str) -> Step:
    from transformers import WhisperConfig

    config = WhisperConfig(
        vocab_size=20000, d_model=512, encoder_layers=4, decoder_layers=4,
        encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048,
        decoder_ffn_dim=2048, use_cache=False, max_source_positions=1500,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    with torch.device(device):
        net = hugging_face("WhisperForConditionalGeneration", config)
        x, y = torch.randn(6, 80, 3000), torch.randint(3, 20000, (6, 200))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(input_features=x, labels=y).loss, torch.bfloat16)


@model
def qwen_fused_clipped(device: str) -> Step:
    from transformers import Qwen3Config

    config = Qwen3Config(
        vocab_size=50000, hidden_size=896, intermediate_size=2432, num_hidden_layers=10,
        num_attention_heads=14, num_key_value_heads=2, head_dim=64, use_cache=False,
    )  # fmt: skip
    with torch.device(device):
        net = hugging_face("Qwen3ForCausalLM", config, torch.bfloat16)
    batch = tokens(50000, 4, 1280, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    return training(net, optimizer, lambda: net(**batch).loss, clip=1.0)


@model
def deberta(device: str) -> Step:
    from transformers import DebertaV2Config

    config = DebertaV2Config(
        vocab_size=30000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8,
        intermediate_size=2048, relative_attention=True, pos_att_type=["c2p", "p2c"],
        position_buckets=128, norm_rel_ebd="layer_norm", share_att_key=True,
    )  # fmt: skip
    with torch.device(device):
        net = hugging_face("DebertaV2ForMaskedLM", config)
    batch = tokens(30000, 10, 320, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(**batch).loss)


@model
def lstm_tagger(device: str) -> Step:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Embedding(30000, 300)
            self.r = nn.LSTM(300, 600, 2, batch_first=True, bidirectional=True, dropout=0.3)
            self.h = nn.Linear(1200, 60)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.h(self.r(F.dropout(self.e(x), 0.2))[0])
            return out

    with torch.device(device):
        net = Net()
        x, y = torch.randint(0, 30000, (40, 150)), torch.randint(0, 60, (40 * 150,))
    optimizer = torch.optim.Adam(net.parameters())
    return training(net, optimizer, lambda: F.cross_entropy(net(x).flatten(0, 1), y), clip=5.0)


@model
def recommender(device: str) -> Step:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rows = (200_000, 50_000, 8_000, 300)
            self.tables = nn.ModuleList(nn.EmbeddingBag(n, 128, mode="sum") for n in rows)
            self.dense = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 128))
            self.top = nn.Sequential(
                nn.Linear(128 + 10, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
            )  # fmt: skip

        def forward(self, dense: Tensor, bags: list[Tensor]) -> Tensor:
            seen = [self.dense(dense), *(t(b) for t, b in zip(self.tables, bags, strict=True))]
            z = torch.stack(seen, 1)
            i, j = torch.triu_indices(5, 5, 1, device=z.device)
            crossed = torch.bmm(z, z.mT)[:, i, j]
            out: Tensor = self.top(torch.cat([seen[0], crossed], 1)).squeeze(1)
            return out

    with torch.device(device):
        net = Net()
        dense, y = torch.rand(8192, 13), torch.randint(0, 2, (8192,)).float()
        bags = [torch.randint(0, t.num_embeddings, (8192, 10)) for t in net.tables]
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.01)
    loss = F.binary_cross_entropy_with_logits
    return training(net, optimizer, lambda: loss(net(dense, bags), y))


@model
def clip_fp16(device: str) -> Step:
    from transformers import CLIPConfig

    text = {"vocab_size": 20000, "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 6}  # fmt: skip
    vision = {"hidden_size": 576, "intermediate_size": 2304, "num_hidden_layers": 8, "num_attention_heads": 9, "image_size": 224, "patch_size": 16}  # fmt: skip
    config: Any = CLIPConfig(text_config=text, vision_config=vision, projection_dim=256)
    with torch.device(device):
        net = hugging_face("CLIPModel", config)
        words, x = torch.randint(3, 20000, (32, 64)), torch.rand(32, 3, 224, 224)
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def loss() -> Tensor:
        value: Tensor = net(input_ids=words, pixel_values=x, return_loss=True).loss
        return value

    return training(net, optimizer, loss, torch.float16, scaler, clip=1.0)
