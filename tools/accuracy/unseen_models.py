# mypy: disable-error-code="misc,call-arg,no-untyped-call,call-overload"
# ruff: noqa: E501 (layers side by side)
"""Training steps of the third prediction before measuring: other architectures again."""

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


def pictures(count: int, size: int, labels: int) -> tuple[Tensor, Tensor]:
    return torch.rand(count, 3, size, size), torch.randint(0, labels, (count,))


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, stride, 1, groups=groups, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.around = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.around(x))


@model
def resnext_fp32(device: str) -> Step:
    with torch.device(device):
        net = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            Block(64, 256, 1, 32), Block(256, 256, 1, 32), Block(256, 512, 2, 32), Block(512, 512, 1, 32),
            Block(512, 1024, 2, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 500),
        )  # fmt: skip
        x, y = pictures(24, 208, 500)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y))


@model
def efficientnet_channels_last_bf16(device: str) -> Step:
    from transformers import EfficientNetConfig

    config: Any = EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=0.6, hidden_dim=1280, image_size=192
    )
    config.num_labels = 300
    with torch.device(device):
        net = hugging_face("EfficientNetForImageClassification", config)
        net = net.to(memory_format=torch.channels_last)
        x, y = pictures(32, 192, 300)
        x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9)
    return training(net, optimizer, lambda: net(pixel_values=x, labels=y).loss, torch.bfloat16)


@model
def autoencoder_fp16(device: str) -> Step:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(
                nn.Conv2d(3, 96, 3, padding=1), nn.SiLU(), nn.Conv2d(96, 192, 4, 2, 1), nn.GroupNorm(16, 192), nn.SiLU(),
                nn.Conv2d(192, 384, 4, 2, 1), nn.GroupNorm(16, 384), nn.SiLU(), nn.Conv2d(384, 384, 3, padding=1),
            )  # fmt: skip
            self.up = nn.Sequential(
                nn.SiLU(), nn.ConvTranspose2d(384, 192, 4, 2, 1), nn.GroupNorm(16, 192), nn.SiLU(),
                nn.ConvTranspose2d(192, 96, 4, 2, 1), nn.GroupNorm(16, 96), nn.SiLU(), nn.Conv2d(96, 3, 3, padding=1),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.up(self.down(x))
            return out

    with torch.device(device):
        net = Net()
        x, _ = pictures(12, 160, 2)
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    return training(net, optimizer, lambda: F.mse_loss(net(x), x), torch.float16, scaler)


@model
def video_bf16(device: str) -> Step:
    with torch.device(device):
        net = nn.Sequential(
            nn.Conv3d(3, 48, (3, 7, 7), (1, 2, 2), (1, 3, 3)), nn.BatchNorm3d(48), nn.ReLU(),
            nn.Conv3d(48, 96, 3, (1, 2, 2), 1), nn.BatchNorm3d(96), nn.ReLU(), nn.Conv3d(96, 96, 3, 1, 1), nn.BatchNorm3d(96), nn.ReLU(),
            nn.Conv3d(96, 192, 3, 2, 1), nn.BatchNorm3d(192), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(192, 100),
        )  # fmt: skip
        x, y = torch.rand(6, 3, 12, 96, 96), torch.randint(0, 100, (6,))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y), torch.bfloat16)


@model
def wav2vec_bf16(device: str) -> Step:
    from transformers import Wav2Vec2Config

    config: Any = Wav2Vec2Config(
        vocab_size=40, hidden_size=384, num_hidden_layers=5, num_attention_heads=6, intermediate_size=1536,
        conv_dim=(256, 256, 256, 256, 256, 256, 256), num_conv_pos_embeddings=64, num_conv_pos_embedding_groups=8,
        mask_time_prob=0.0, layerdrop=0.0, num_labels=12,
    )  # fmt: skip
    with torch.device(device):
        net = hugging_face("Wav2Vec2ForSequenceClassification", config)
        x, y = torch.randn(8, 64000), torch.randint(0, 12, (8,))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(input_values=x, labels=y).loss, torch.bfloat16)


@model
def segformer_fp32(device: str) -> Step:
    from transformers import SegformerConfig

    config: Any = SegformerConfig(
        hidden_sizes=[32, 64, 160, 256], depths=[2, 2, 2, 2], decoder_hidden_size=256, num_labels=21
    )
    with torch.device(device):
        net = hugging_face("SegformerForSemanticSegmentation", config)
        x, y = torch.rand(6, 3, 256, 256), torch.randint(0, 21, (6, 256, 256))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(pixel_values=x, labels=y).loss)


@model
def dilated_segmenter_fp32(device: str) -> Step:
    def layer(inputs: int, outputs: int, dilation: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm2d(outputs), nn.LeakyReLU(),
        )  # fmt: skip

    with torch.device(device):
        net = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2, 1), layer(64, 128, 1), layer(128, 128, 2), layer(128, 192, 4), layer(192, 192, 8),
            nn.Conv2d(192, 19, 1), nn.Upsample(scale_factor=2, mode="bilinear"),
        )  # fmt: skip
        x, y = torch.rand(6, 3, 192, 192), torch.randint(0, 19, (6, 192, 192))
    optimizer = torch.optim.Adam(net.parameters())
    return training(net, optimizer, lambda: F.cross_entropy(net(x), y))


@model
def gemma_eager_bf16(device: str) -> Step:
    from transformers import Gemma2Config

    config: Any = Gemma2Config(
        vocab_size=40000, hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, head_dim=96, sliding_window=256, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    with torch.device(device):
        net = hugging_face("Gemma2ForCausalLM", config, torch.bfloat16)
    batch = tokens(40000, 4, 768, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(**batch).loss, clip=1.0)


@model
def deep_gru_translator(device: str) -> Step:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Embedding(16000, 384)
            self.reader = nn.GRU(384, 512, 2, batch_first=True, bidirectional=True)
            self.writer = nn.LSTM(384, 1024, 1, batch_first=True)
            self.mix = nn.MultiheadAttention(1024, 8, batch_first=True)
            self.h = nn.Linear(1024, 16000)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            read = self.reader(self.e(source))[0]
            written = self.writer(self.e(target))[0]
            out: Tensor = self.h(written + self.mix(written, read, read, need_weights=False)[0])
            return out

    with torch.device(device):
        net = Net()
        source, target = torch.randint(0, 16000, (24, 70)), torch.randint(0, 16000, (24, 60))
    optimizer = torch.optim.Adam(net.parameters())
    return training(
        net, optimizer, lambda: F.cross_entropy(net(source, target).flatten(0, 1), target.flatten())
    )
