"""What convolutions and products allocate under torch's switches: a real GPU beside a virtual one.

    python tools/measure_switches.py [--gpu h200]

Prints a line for each call: requested bytes above what was there, forward and backward, real and
virtual, and whether they agree. Needs a CUDA build of torch and the GPU; the exit status is 1 when
a call differs.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

Rise = dict[str, int]
Flags = dict[str, Any]


def depthwise(channels: int, dtype: torch.dtype, stride: int = 1) -> Callable[[], Rise]:
    def run() -> Rise:
        net = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
        return rise(net.to("cuda", dtype), torch.zeros(8, channels, 56, 56, dtype=dtype))

    return run


def plain(
    dilation: int = 1, transposed: bool = False, groups: int = 1, window: int = 3
) -> Callable[[], Rise]:
    def run() -> Rise:
        kind = nn.ConvTranspose2d if transposed else nn.Conv2d
        padding = window // 2
        net = kind(32, 64, window, 1, padding, dilation=dilation, groups=groups, device="cuda")
        return rise(net, torch.zeros(8, 32, 48, 48))

    return run


def batch_norm(channels: int, side: int = 28, pictures: int = 16) -> Callable[[], Rise]:
    """By cuDNN, which keeps more for channels-last pictures."""

    def run() -> Rise:
        x = torch.zeros(pictures, channels, side, side).to(memory_format=torch.channels_last)
        return rise(nn.BatchNorm2d(channels, device="cuda"), x)

    return run


CASES: dict[str, tuple[Flags, Callable[[], Rise]]] = {
    "depthwise fp16, 64 channels: cuDNN": ({}, depthwise(64, torch.float16)),
    "depthwise fp16, 512 channels, stride 2: cuDNN": ({}, depthwise(512, torch.float16, 2)),
    "depthwise fp16, 16 channels: torch": ({}, depthwise(16, torch.float16)),
    "depthwise bf16: torch": ({}, depthwise(64, torch.bfloat16)),
    "fp32": ({}, plain()),
    "fp32 without tf32": ({"allow_tf32": False}, plain()),
    "fp32 deterministic": ({"deterministic": True}, plain()),
    "fp32 without cuDNN": ({"enabled": False}, plain()),
    "fp32 dilated without cuDNN": ({"enabled": False}, plain(dilation=2)),
    "fp32 transposed without cuDNN": ({"enabled": False}, plain(transposed=True)),
    "fp32 in groups without cuDNN": ({"enabled": False}, plain(groups=4)),
    "fp32, one pixel, without cuDNN": ({"enabled": False}, plain(window=1)),
    "fp32 transposed in groups without cuDNN": (
        {"enabled": False},
        plain(transposed=True, groups=4),
    ),
    "channels-last batch norm": ({}, batch_norm(64)),
    "channels-last batch norm, 512 channels": ({}, batch_norm(512)),
    "channels-last batch norm, 48 channels": ({}, batch_norm(48)),
    "channels-last batch norm, large pictures": ({}, batch_norm(64, side=112)),
    "channels-last batch norm, small pictures": ({}, batch_norm(64, side=7, pictures=4)),
}


def rise(net: nn.Module, x: torch.Tensor) -> Rise:
    """Of the second call: what stays after the first (workspaces of libraries) is there already."""
    x = x.cuda().requires_grad_()
    found: Rise = {}
    for _ in range(2):
        with peak(found, "forward"):
            y = net(x)
        gradient = torch.ones_like(y)
        with peak(found, "backward"):
            y.backward(gradient)
        x.grad = None
        net.zero_grad()
    return found


@contextlib.contextmanager
def peak(found: Rise, name: str) -> Iterator[None]:
    key = "requested_bytes.all"
    before = torch.cuda.memory_stats()[f"{key}.current"]
    torch.cuda.reset_peak_memory_stats()
    yield
    found[name] = torch.cuda.memory_stats()[f"{key}.peak"] - before


def measure() -> dict[str, Rise]:
    results = {}
    for name, (flags, run) in CASES.items():
        with torch.backends.cudnn.flags(**{"enabled": True, **flags}):
            results[name] = run()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", default="h200", help="the virtual GPU to compare with")
    args = parser.parse_args()
    real = measure() if torch.cuda.is_available() else {}
    import peakline

    with peakline.virtual_gpu(args.gpu):
        virtual = measure()
    for name, found in virtual.items():
        agrees = real.get(name) == found
        verdict = "no GPU" if not real else "agrees" if agrees else "DIFFERS"
        print(f"{verdict:8} {name:48} real {real.get(name)} virtual {found}")
    return int(bool(real) and real != virtual)


if __name__ == "__main__":
    raise SystemExit(main())
