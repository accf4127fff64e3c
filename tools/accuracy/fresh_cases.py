# mypy: disable-error-code="misc,call-overload,arg-type,assignment"
# ruff: noqa: E501 (a table of cases: one a line)
"""Operators whose memory was predicted before it was measured: no rule was made with these shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from accuracy.op_cases import (
    BF16,
    DEVICE,
    FP16,
    FP32,
    Call,
    Case,
    conv_call,
    ints,
    optimizer_call,
    rand,
    sdpa_call,
)

CONVOLUTIONS: tuple[tuple[Any, ...], ...] = (
    # dtype, channels last, batch, in, out, size, kernel, stride, padding, groups
    (FP32, False, 16, 128, 192, 40, 3, 1, 1, 1), (FP32, False, 24, 256, 256, 20, 3, 1, 1, 1), (FP32, False, 8, 64, 96, 80, 3, 1, 1, 1),
    (FP32, False, 16, 512, 256, 16, 1, 1, 0, 1), (FP32, False, 12, 384, 768, 14, 1, 2, 0, 1), (FP32, False, 32, 3, 32, 160, 3, 2, 1, 1),
    (FP32, False, 16, 144, 144, 56, 3, 1, 1, 144), (FP32, True, 16, 128, 192, 40, 3, 1, 1, 1), (FP32, True, 16, 256, 512, 28, 1, 2, 0, 1),
    (BF16, False, 16, 128, 192, 40, 3, 1, 1, 1), (BF16, False, 16, 96, 384, 28, 1, 1, 0, 1), (BF16, False, 8, 3, 96, 256, 4, 4, 0, 1),
    (BF16, False, 16, 192, 384, 28, 2, 2, 0, 1), (BF16, False, 32, 3, 64, 192, 7, 2, 3, 1), (BF16, False, 16, 256, 256, 28, 3, 1, 1, 32),
    (FP16, False, 8, 512, 512, 24, 3, 1, 1, 1), (BF16, True, 16, 128, 192, 40, 3, 1, 1, 1), (BF16, True, 32, 192, 768, 14, 1, 1, 0, 1),
    (BF16, True, 16, 256, 256, 20, 3, 2, 1, 1), (BF16, True, 32, 3, 64, 192, 7, 2, 3, 1), (BF16, True, 16, 320, 320, 16, 3, 1, 1, 320),
    (FP16, True, 16, 192, 192, 32, 3, 1, 1, 1),
)  # fmt: skip

RECURRENT: tuple[tuple[Any, ...], ...] = (
    # kind, dtype, batch, length, inputs, hidden, layers, two directions, dropout
    ("LSTM", FP32, 20, 60, 400, 400, 2, False, 0.0), ("LSTM", BF16, 48, 80, 256, 768, 2, True, 0.3), ("LSTM", FP16, 16, 120, 160, 384, 1, True, 0.0),
    ("GRU", FP32, 16, 100, 320, 320, 3, False, 0.3), ("GRU", FP16, 24, 90, 200, 512, 1, True, 0.0), ("GRU", BF16, 40, 64, 256, 640, 4, False, 0.0),
    ("RNN", FP32, 32, 70, 300, 600, 1, False, 0.0), ("RNN", BF16, 10, 150, 100, 256, 2, True, 0.0),
)  # fmt: skip

ATTENTION: tuple[tuple[Any, ...], ...] = (
    # dtype, backend, batch, heads, kv heads, queries, keys, head size, causal, mask, dropout
    (BF16, None, 3, 14, 2, 1536, 1536, 64, True, None, 0.0), (BF16, None, 4, 10, 10, 900, 77, 64, False, None, 0.0), (FP16, None, 6, 6, 6, 441, 441, 64, False, None, 0.1),
    (FP32, None, 2, 12, 12, 640, 640, 64, True, None, 0.0), (FP32, None, 4, 8, 8, 300, 300, 80, False, "float", 0.0), (BF16, None, 2, 16, 16, 700, 700, 96, False, "bool", 0.0),
    (BF16, "flash", 2, 9, 9, 1100, 1100, 128, True, None, 0.0), (FP16, "efficient", 4, 12, 12, 257, 257, 64, False, "full", 0.0), (BF16, None, 1, 8, 8, 2048, 2048, 256, True, None, 0.0),
    (BF16, "efficient", 2, 8, 8, 333, 600, 40, False, None, 0.0),
)  # fmt: skip

Calls = dict[str, Callable[[], Call]]
Rows = tuple[tuple[Any, ...], ...]


class Shapes(NamedTuple):
    """Tables of the operators whose shapes are worth varying."""

    convolutions: Rows
    recurrent: Rows
    attention: Rows
    optimizers: Rows


def of(call: Callable[..., Any], *inputs: Any) -> Call:
    return lambda: call(*inputs)


def recurrent_call(kind: str, dtype: torch.dtype, b: int, t: int, i: int, h: int, layers: int, both: bool, drop: float) -> Call:  # fmt: skip
    net = getattr(nn, kind)(
        i, h, layers, batch_first=True, bidirectional=both, dropout=drop, device=DEVICE, dtype=dtype
    )
    x = rand(b, t, i, dtype=dtype)
    return lambda: net(x)[0]


OTHER_CONVOLUTIONS: Calls = {
    "conv1d": lambda: of(nn.Conv1d(128, 256, 5, padding=2, device=DEVICE, dtype=BF16), rand(16, 128, 1500, dtype=BF16)),
    "conv1d_stride": lambda: of(nn.Conv1d(160, 320, 4, 2, 1, device=DEVICE), rand(12, 160, 1000)),
    "conv3d": lambda: of(nn.Conv3d(32, 64, 3, padding=1, device=DEVICE, dtype=BF16), rand(2, 32, 16, 48, 48, dtype=BF16)),
    "conv_transpose2d": lambda: of(nn.ConvTranspose2d(192, 96, 4, 2, 1, device=DEVICE, dtype=BF16), rand(8, 192, 32, 32, dtype=BF16)),
    "conv2d_dilated": lambda: of(nn.Conv2d(256, 256, 3, padding=4, dilation=4, device=DEVICE), rand(4, 256, 48, 48)),
}  # fmt: skip

MATMUL: Calls = {
    "linear_tall": lambda: of(nn.Linear(1536, 384, device=DEVICE, dtype=BF16), rand(10000, 1536, dtype=BF16)),
    "linear_odd": lambda: of(nn.Linear(333, 1001, device=DEVICE), rand(777, 333)),
    "linear_4d": lambda: of(nn.Linear(96, 288, device=DEVICE, dtype=FP16), rand(6, 14, 49, 96, dtype=FP16)),
    "matmul_broadcast": lambda: of(torch.matmul, rand(5, 7, 200, 64), rand(64, 90)),
    "bmm_transposed": lambda: (lambda a, b: lambda: a @ b.mT)(rand(40, 320, 48, dtype=BF16), rand(40, 256, 48, dtype=BF16)),
    "bilinear": lambda: of(nn.Bilinear(64, 48, 32, device=DEVICE), rand(500, 64), rand(500, 48)),
}  # fmt: skip

INDEXING: Calls = {
    "embedding_large": lambda: of(nn.Embedding(49152, 576, device=DEVICE, dtype=BF16), ints(49152, 6, 1400)),
    "embedding_small": lambda: of(nn.Embedding(300, 200, device=DEVICE), ints(300, 2500)),
    "embedding_bag_mean": lambda: of(nn.EmbeddingBag(50000, 64, mode="mean", device=DEVICE), ints(50000, 700, 20)),
    "index_rows": lambda: (lambda x, i: lambda: x[i])(rand(9000, 384, dtype=BF16), ints(9000, 12000)),
    "take_along": lambda: of(torch.take_along_dim, rand(600, 900), ints(900, 600, 40), 1),
    "scatter_add_rows": lambda: of(torch.scatter_add, rand(2000, 96), 0, ints(2000, 7000, 96), rand(7000, 96)),
    "cumsum_rows": lambda: of(torch.cumsum, rand(333, 7777), 1),
    "cumprod_columns": lambda: of(torch.cumprod, rand(2500, 300), 0),
}  # fmt: skip

SORTING: Calls = {
    "sort_rows": lambda: of(torch.sort, torch.rand(300, 3000, device=DEVICE)),
    "sort_long": lambda: of(torch.sort, torch.rand(700_001, device=DEVICE)),
    "argsort_ints": lambda: of(torch.argsort, ints(5000, 120_000)),
    "topk_rows": lambda: of(torch.topk, torch.rand(128, 20_000, device=DEVICE), 100),
    "unique_counts": lambda: (lambda i: lambda: torch.unique(i, return_counts=True))(torch.arange(90_000, device=DEVICE)),
    "cummax": lambda: of(torch.cummax, torch.rand(2000, 1500, device=DEVICE), 1),
    "median_rows": lambda: of(torch.median, torch.rand(700, 4000, device=DEVICE), 1),
    "randperm": lambda: of(lambda: torch.randperm(150_000, device=DEVICE)),
}  # fmt: skip

NORMS: Calls = {
    "layer_norm": lambda: of(nn.LayerNorm(1536, device=DEVICE, dtype=BF16), rand(3000, 1536, dtype=BF16)),
    "layer_norm_many_rows": lambda: of(nn.LayerNorm(48, device=DEVICE), rand(250_000, 48)),
    "rms_norm": lambda: of(nn.RMSNorm(2560, device=DEVICE, dtype=BF16), rand(4, 900, 2560, dtype=BF16)),
    "group_norm": lambda: of(nn.GroupNorm(16, 192, device=DEVICE), rand(6, 192, 50, 50)),
    "batch_norm": lambda: of(nn.BatchNorm2d(160, device=DEVICE), rand(24, 160, 30, 30)),
    "batch_norm_1d": lambda: of(nn.BatchNorm1d(300, device=DEVICE), rand(9000, 300)),
    "softmax_wide": lambda: of(torch.softmax, rand(500, 40_000, dtype=BF16), -1),
    "weight_norm": lambda: of(nn.utils.parametrizations.weight_norm(nn.Linear(800, 600, device=DEVICE)), rand(900, 800)),
}  # fmt: skip

LOSSES: Calls = {
    "cross_entropy_ignored": lambda: (lambda x, t: lambda: F.cross_entropy(x.float(), t, ignore_index=5))(rand(1500, 24_000, dtype=BF16), ints(24_000, 1500)),
    "smooth_l1": lambda: of(F.smooth_l1_loss, rand(700, 3000), rand(700, 3000, grad=False)),
    "cosine_similarity": lambda: of(F.cosine_similarity, rand(3000, 512), rand(3000, 512)),
    "geglu": lambda: (lambda x: lambda: (lambda a, b: a * F.gelu(b))(*x.chunk(2, -1)))(rand(2000, 5120, dtype=BF16)),
}  # fmt: skip

OPTIMIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("AdamW", {"amsgrad": True}), ("Adam", {"fused": True}), ("SGD", {"momentum": 0.9, "foreach": False}),
    ("NAdam", {}), ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adagrad", {}),
)  # fmt: skip


def table(family: str, calls: Calls, grad: bool = True) -> Iterator[Case]:
    for name, make in calls.items():
        yield Case(family, {"call": name}, make, grad=grad)


def shapes(tables: Shapes) -> Iterator[Case]:
    for c in tables.convolutions:
        names = ("dtype", "channels_last", "B", "ci", "co", "size", "k", "stride", "pad", "groups")
        yield Case("conv2d", dict(zip(names, c, strict=True)), lambda c=c: conv_call(*c))
    for r in tables.recurrent:
        names = ("kind", "dtype", "B", "T", "input", "hidden", "layers", "bi", "dropout")
        yield Case("rnn", dict(zip(names, r, strict=True)), lambda r=r: recurrent_call(*r))
    for a in tables.attention:
        names = ("dtype", "backend", "B", "H", "KV", "T", "S", "d", "causal", "mask", "dropout")
        yield Case("sdpa", dict(zip(names, a, strict=True)), lambda a=a: sdpa_call(*a))
    for name, options in tables.optimizers:
        yield Case(
            "optimizer", {"name": name, **options}, lambda n=name, o=options: optimizer_call(n, o),
            grad=False,
        )  # fmt: skip


def all_cases() -> list[Case]:
    tables = (
        table("convolution", OTHER_CONVOLUTIONS), table("matmul", MATMUL), table("indexing", INDEXING),
        table("sorting", SORTING, grad=False), table("norm", NORMS), table("loss", LOSSES),
    )  # fmt: skip
    in_shapes = shapes(Shapes(CONVOLUTIONS, RECURRENT, ATTENTION, OPTIMIZERS))
    return [*in_shapes, *(case for rows in tables for case in rows)]
