# mypy: disable-error-code="misc,call-overload,arg-type,assignment"
# ruff: noqa: E501 (a table of cases: one a line)
"""Operators of the third prediction before measuring: other shapes than any before."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from accuracy.fresh_cases import Calls, Shapes, of, shapes, table
from accuracy.op_cases import BF16, DEVICE, FP16, FP32, Case, ints, rand

CONVOLUTIONS: tuple[tuple[Any, ...], ...] = (
    # dtype, channels last, batch, in, out, size, kernel, stride, padding, groups
    (FP32, False, 10, 96, 160, 48, 3, 1, 1, 1), (FP32, False, 20, 320, 256, 18, 3, 1, 1, 1), (FP32, False, 6, 48, 48, 96, 5, 1, 2, 1),
    (FP32, False, 32, 256, 1024, 14, 1, 1, 0, 1), (FP32, False, 14, 192, 448, 28, 1, 2, 0, 1), (FP32, False, 24, 3, 80, 180, 6, 2, 2, 1),
    (FP32, False, 12, 224, 224, 28, 3, 2, 1, 8), (FP32, True, 18, 96, 192, 36, 3, 1, 1, 1), (FP32, True, 8, 384, 384, 24, 3, 2, 1, 1),
    (FP32, True, 16, 128, 512, 20, 1, 1, 0, 1), (BF16, False, 12, 160, 160, 44, 3, 1, 1, 1), (BF16, False, 20, 64, 256, 52, 1, 1, 0, 1),
    (BF16, False, 16, 3, 48, 224, 3, 2, 1, 1), (BF16, False, 6, 3, 384, 224, 14, 14, 0, 1), (BF16, False, 16, 288, 576, 22, 3, 2, 1, 1),
    (FP16, False, 10, 384, 256, 30, 3, 1, 1, 1), (FP16, False, 24, 128, 128, 26, 5, 1, 2, 1), (FP16, False, 16, 1024, 512, 12, 1, 1, 0, 1),
    (BF16, True, 20, 96, 96, 56, 3, 1, 1, 1), (BF16, True, 12, 512, 512, 18, 3, 1, 1, 1), (BF16, True, 24, 256, 64, 40, 1, 1, 0, 1),
    (BF16, True, 10, 144, 288, 34, 3, 2, 1, 1), (BF16, True, 16, 3, 32, 208, 3, 2, 1, 1), (BF16, True, 12, 384, 384, 20, 5, 1, 2, 384),
    (FP16, True, 14, 240, 240, 28, 3, 1, 1, 240), (FP16, True, 8, 256, 768, 32, 2, 2, 0, 1), (FP16, True, 12, 192, 160, 24, 7, 1, 3, 1),
)  # fmt: skip

RECURRENT: tuple[tuple[Any, ...], ...] = (
    # kind, dtype, batch, length, inputs, hidden, layers, two directions, dropout
    ("LSTM", FP32, 28, 90, 256, 512, 1, True, 0.0), ("LSTM", BF16, 36, 100, 512, 512, 3, False, 0.2), ("LSTM", FP16, 12, 140, 300, 640, 2, False, 0.0),
    ("GRU", FP32, 20, 80, 200, 480, 2, True, 0.0), ("GRU", BF16, 30, 110, 384, 384, 2, False, 0.1), ("GRU", FP16, 18, 70, 256, 768, 1, False, 0.0),
)  # fmt: skip

ATTENTION: tuple[tuple[Any, ...], ...] = (
    # dtype, backend, batch, heads, kv heads, queries, keys, head size, causal, mask, dropout
    (BF16, None, 2, 20, 4, 1280, 1280, 128, True, None, 0.0), (BF16, None, 5, 12, 12, 577, 577, 64, False, None, 0.0), (FP16, None, 4, 8, 8, 700, 120, 80, False, None, 0.0),
    (FP32, None, 3, 10, 10, 512, 512, 64, False, None, 0.1), (FP32, None, 2, 16, 16, 384, 384, 48, True, None, 0.0), (BF16, None, 3, 12, 12, 450, 450, 64, False, "bool", 0.1),
    (FP16, "flash", 2, 8, 8, 900, 900, 96, False, None, 0.1), (BF16, "math", 2, 6, 6, 256, 256, 64, True, None, 0.0), (BF16, None, 2, 8, 8, 1000, 1000, 72, True, None, 0.0),
    (FP16, "efficient", 3, 9, 9, 420, 420, 64, True, None, 0.0),
)  # fmt: skip

OPTIMIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("AdamW", {}), ("Adam", {"foreach": False}), ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adamax", {}), ("RAdam", {}), ("AdamW", {"capturable": True}),
)  # fmt: skip

OTHER_CONVOLUTIONS: Calls = {
    "conv1d_k7": lambda: of(nn.Conv1d(96, 192, 7, padding=3, device=DEVICE), rand(10, 96, 2000)),
    "conv1d_stride_bf16": lambda: of(nn.Conv1d(512, 512, 3, 2, device=DEVICE, dtype=BF16), rand(8, 512, 3199, dtype=BF16)),
    "conv3d_fp32": lambda: of(nn.Conv3d(24, 48, 3, padding=1, device=DEVICE), rand(2, 24, 12, 40, 40)),
    "conv3d_k1": lambda: of(nn.Conv3d(64, 128, 1, device=DEVICE, dtype=BF16), rand(4, 64, 8, 28, 28, dtype=BF16)),
    "conv_transpose2d_k2": lambda: of(nn.ConvTranspose2d(320, 160, 2, 2, device=DEVICE), rand(6, 320, 28, 28)),
    "conv_transpose1d": lambda: of(nn.ConvTranspose1d(256, 128, 8, 4, 2, device=DEVICE, dtype=FP16), rand(8, 256, 400, dtype=FP16)),
    "conv2d_dilated_bf16": lambda: of(nn.Conv2d(128, 192, 3, padding=2, dilation=2, device=DEVICE, dtype=BF16), rand(8, 128, 40, 40, dtype=BF16)),
    "conv2d_wide_window": lambda: of(nn.Conv2d(64, 64, (1, 7), padding=(0, 3), device=DEVICE), rand(8, 64, 48, 48)),
}  # fmt: skip

MATMUL: Calls = {
    "linear_wide": lambda: of(nn.Linear(640, 5120, device=DEVICE, dtype=BF16), rand(6000, 640, dtype=BF16)),
    "linear_no_bias": lambda: of(nn.Linear(1000, 300, bias=False, device=DEVICE), rand(1234, 1000)),
    "einsum": lambda: of(lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), rand(3, 7, 200, 40), rand(3, 7, 180, 40)),
    "matmul_vector": lambda: of(torch.matmul, rand(900, 700), rand(700)),
}  # fmt: skip

INDEXING: Calls = {
    "embedding_middle": lambda: of(nn.Embedding(32000, 1024, device=DEVICE), ints(32000, 3, 900)),
    "embedding_few_rows": lambda: of(nn.Embedding(12, 512, device=DEVICE, dtype=BF16), ints(12, 8000)),
    "index_put": lambda: (lambda x, i, v: lambda: x.index_put((i,), v, accumulate=True))(rand(4000, 200), ints(4000, 6000), rand(6000, 200)),
    "gather_columns": lambda: of(torch.gather, rand(900, 1200, dtype=BF16), 1, ints(1200, 900, 300)),
    "index_add": lambda: of(torch.index_add, rand(3000, 128), 0, ints(3000, 5000), rand(5000, 128)),
    "cumsum_long": lambda: of(torch.cumsum, rand(3_000_001), 0),
}  # fmt: skip

SORTING: Calls = {
    "sort_columns": lambda: of(torch.sort, torch.rand(4000, 500, device=DEVICE), 0),
    "topk_few": lambda: of(torch.topk, torch.rand(5000, 64, device=DEVICE), 2),
    "argmax_rows": lambda: of(torch.argmax, torch.rand(1500, 9000, device=DEVICE), 1),
    "multinomial": lambda: of(torch.multinomial, torch.rand(200, 5000, device=DEVICE), 4),
    "kthvalue": lambda: of(torch.kthvalue, torch.rand(400, 6000, device=DEVICE), 30),
}  # fmt: skip

NORMS: Calls = {
    "layer_norm_fp32": lambda: of(nn.LayerNorm(1280, device=DEVICE), rand(2600, 1280)),
    "layer_norm_few_rows": lambda: of(nn.LayerNorm(8192, device=DEVICE, dtype=BF16), rand(300, 8192, dtype=BF16)),
    "group_norm_bf16": lambda: of(nn.GroupNorm(32, 320, device=DEVICE, dtype=BF16), rand(5, 320, 36, 36, dtype=BF16)),
    "batch_norm_half": lambda: of(nn.BatchNorm2d(96, device=DEVICE), rand(20, 96, 40, 40, dtype=FP16)),
    "instance_norm": lambda: of(nn.InstanceNorm2d(64, affine=True, device=DEVICE), rand(10, 64, 60, 60)),
    "softmax_rows": lambda: of(torch.softmax, rand(6, 9, 300, 300), -1),
    "log_softmax": lambda: of(torch.log_softmax, rand(900, 30_000, dtype=BF16), -1),
    "vector_norm": lambda: of(torch.linalg.vector_norm, rand(5_000_000)),
}  # fmt: skip

LOSSES: Calls = {
    "cross_entropy_smoothed": lambda: (lambda x, t: lambda: F.cross_entropy(x, t, label_smoothing=0.1))(rand(900, 32_000), ints(32_000, 900)),
    "bce_logits": lambda: of(F.binary_cross_entropy_with_logits, rand(4000, 900), torch.rand(4000, 900, device=DEVICE)),
    "huber": lambda: of(F.huber_loss, rand(2_000_000), rand(2_000_000, grad=False)),
    "swiglu": lambda: of(lambda a, b: F.silu(a) * b, rand(1800, 4096, dtype=BF16), rand(1800, 4096, dtype=BF16)),
    "dropout_gelu": lambda: of(lambda x: F.dropout(F.gelu(x, approximate="tanh"), 0.1), rand(1600, 6144, dtype=BF16)),
    "interpolate": lambda: of(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), rand(6, 96, 45, 45)),
    "max_pool": lambda: of(nn.MaxPool2d(3, 2, 1), rand(16, 80, 90, 90, dtype=BF16)),
}  # fmt: skip


def all_cases() -> list[Case]:
    tables = (
        table("convolution", OTHER_CONVOLUTIONS), table("matmul", MATMUL), table("indexing", INDEXING),
        table("sorting", SORTING, grad=False), table("norm", NORMS), table("loss", LOSSES),
    )  # fmt: skip
    in_shapes = shapes(Shapes(CONVOLUTIONS, RECURRENT, ATTENTION, OPTIMIZERS))
    return [*in_shapes, *(case for rows in tables for case in rows)]
