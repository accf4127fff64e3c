"""On a real GPU: peaks inside convolutions, whose workspaces come and go within one op.

A workspace that the allocator did not split counts for more than was asked, and is freed before
anybody can ask what it counts for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpu_support import fresh
from test_exact_peak import check
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import peakline


class DenseBlock(nn.Module):
    def __init__(self, width: int = 64, growth: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(width + i * growth, growth if i < 4 else width, 3, padding=1)
            for i in range(5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = [x]
        for layer in self.layers[:-1]:
            seen.append(functional.leaky_relu(layer(torch.cat(seen, 1)), 0.2))
        return x + 0.2 * self.layers[-1](torch.cat(seen, 1))


class ResidualInResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(DenseBlock(), DenseBlock(), DenseBlock())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.2 * self.body(x)


class Generator(nn.Module):
    """Super-resolution as ESRGAN does it: dense blocks, then two nearest upsamplings."""

    def __init__(self, blocks: int = 3, checkpointed: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3, padding=1)
        self.blocks = nn.ModuleList(ResidualInResidual() for _ in range(blocks))
        self.ups = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))
        self.last = nn.Conv2d(64, 3, 3, padding=1)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        for up in self.ups:
            x = functional.leaky_relu(up(functional.interpolate(x, scale_factor=2.0)), 0.2)
        return self.last(x)


class PixelShuffle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 5, padding=2), nn.PReLU(), nn.Conv2d(64, 96, 3, padding=1),
            nn.PReLU(), nn.Conv2d(96, 3 * 16, 3, padding=1), nn.PixelShuffle(4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Small(nn.Module):
    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, padding=1)
        self.second = nn.Conv2d(24, 40, 5, padding=2, stride=2, groups=groups)
        self.head = nn.Linear(40, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(
            functional.relu(self.second(functional.relu(self.first(x)))).mean((-2, -1))
        )


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(2, 20, 3, padding=1), nn.GELU(), nn.Conv3d(20, 36, 3, padding=1, stride=2),
            nn.GELU(), nn.ConvTranspose3d(36, 4, 2, stride=2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 48, 15, stride=4, padding=7), nn.GELU(), nn.Conv1d(48, 96, 9, dilation=3),
            nn.GELU(), nn.ConvTranspose1d(96, 1, 16, stride=4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Halves:
    """fp16 autocast with a GradScaler, as before bfloat16."""

    def __init__(self, model: nn.Module, *shape: int, channels_last: bool = False) -> None:
        self.model = model.cuda()
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.opt = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler()
        self.shape = shape
        self.format = torch.channels_last if channels_last else torch.contiguous_format

    def step(self) -> None:
        x = torch.rand(self.shape, device="cuda").to(memory_format=self.format)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(x).float().abs().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.scaler.update()
        self.opt.zero_grad(set_to_none=True)


class PureHalves(Halves):
    """Parameters in half precision, too."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, *shape: int) -> None:
        super().__init__(model.to(dtype), *shape)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.dtype = dtype

    def step(self) -> None:
        x = torch.rand(self.shape, device="cuda", dtype=self.dtype)
        self.model(x).float().square().mean().backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


class PerSample:
    """Gradients of every sample by themselves: vmap(grad(…)), clipped and averaged."""

    def __init__(
        self, model: nn.Module, *shape: int, chunk: int | None = None, half: bool = False
    ) -> None:
        self.model = model.cuda()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.shape = shape
        self.chunk = chunk
        self.half = half

    def step(self) -> None:
        weights = {name: value.detach() for name, value in self.model.named_parameters()}
        x = torch.rand(self.shape, device="cuda")

        def loss(weights: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
            out = functional_call(self.model, weights, (sample.unsqueeze(0),))
            return out.float().square().mean()

        with torch.autocast("cuda", dtype=torch.float16, enabled=self.half):
            each = vmap(grad(loss), in_dims=(None, 0), chunk_size=self.chunk)(weights, x)
        for name, parameter in self.model.named_parameters():
            norms = each[name].flatten(1).norm(dim=1).clamp(min=1.0)
            scale = norms.reshape(-1, *[1] * (each[name].dim() - 1))
            parameter.grad = (each[name] / scale).mean(0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


WORKLOADS: dict[str, Callable[[], Any]] = {
    "esrgan_fp16": lambda: Halves(Generator(), 4, 3, 48, 48),
    "esrgan_fp16_batch_of_one": lambda: Halves(Generator(), 1, 3, 128, 128),
    "esrgan_fp16_checkpointed": lambda: Halves(Generator(checkpointed=True), 4, 3, 64, 64),
    "esrgan_fp16_channels_last": lambda: Halves(Generator(), 4, 3, 48, 48, channels_last=True),
    "pixel_shuffle_fp16": lambda: Halves(PixelShuffle(), 8, 3, 96, 96),
    "volume_fp16": lambda: Halves(Volume(), 2, 2, 24, 48, 48),
    "sound_float16": lambda: PureHalves(Sound(), torch.float16, 8, 1, 16000),
    "sound_bfloat16": lambda: PureHalves(Sound(), torch.bfloat16, 8, 1, 16000),
    "per_sample": lambda: PerSample(Small(), 64, 3, 64, 64),
    "per_sample_grouped": lambda: PerSample(Small(groups=4), 48, 3, 56, 56),
    "per_sample_in_chunks": lambda: PerSample(Small(), 96, 3, 48, 48, chunk=32),
    "per_sample_fp16": lambda: PerSample(Small(), 64, 3, 72, 72, half=True),
}


def test_peaks_inside_convolutions_are_exact_with_and_without_ops() -> None:
    wrong = {}
    for name, build in WORKLOADS.items():
        fresh()
        workload = build()
        for ops in (True, False):
            try:
                check(workload, ops=ops)
            except AssertionError as error:
                wrong[name, ops] = str(error)
        del workload
    fresh()
    assert not wrong, wrong


def test_a_block_freed_right_after_its_allocation_counts_for_all_that_it_got() -> None:
    """Without any convolution: a hole of 12 MiB serves a request a bit below it whole."""
    fresh()
    base = torch.empty(1, device="cuda")
    hole = torch.empty(12 << 20, dtype=torch.uint8, device="cuda")
    del hole
    torch.cuda.reset_peak_memory_stats()
    with peakline.track() as run:
        workspace = torch.empty((12 << 20) - 300_000, dtype=torch.uint8, device="cuda")
        del workspace
    assert run.peak("cuda:0").bytes == torch.cuda.max_memory_allocated()
    assert run.warnings == []
    del base


def test_a_free_right_after_does_not_hide_the_peak_before_it() -> None:
    fresh()
    hole = torch.empty(12 << 20, dtype=torch.uint8, device="cuda")
    other = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
    del hole
    torch.cuda.reset_peak_memory_stats()
    with peakline.track() as run:
        kept = torch.empty((12 << 20) - 300_000, dtype=torch.uint8, device="cuda")
        del other
    assert run.peak("cuda:0").bytes == torch.cuda.max_memory_allocated()
    assert run.warnings == []
    del kept


def test_resetting_accumulated_statistics_in_between_is_harmless() -> None:
    fresh()
    hole = torch.empty(12 << 20, dtype=torch.uint8, device="cuda")
    del hole
    torch.cuda.reset_peak_memory_stats()
    with peakline.track() as run:
        kept = torch.empty((12 << 20) - 300_000, dtype=torch.uint8, device="cuda")
        torch.cuda.reset_accumulated_memory_stats()
        more = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    assert run.peak("cuda:0").bytes == torch.cuda.max_memory_allocated()
    assert run.warnings == []
    del kept, more
