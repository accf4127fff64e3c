# mypy: disable-error-code="misc,call-overload,assignment"
# ruff: noqa: C408, E501 (a table of cases: one a line, arguments by name)
"""Single operators, with shapes and types, whose memory is measured on a GPU and predicted without one.

A case is a name and a function that sets tensors up on the device and returns the call to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Call = Callable[[], Any]
DEVICE = "cuda"
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


@dataclass
class Case:
    family: str
    args: dict[str, Any]
    make: Callable[[], Call]
    grad: bool = True
    choice: Callable[[], int] | None = field(default=None)

    @property
    def name(self) -> str:
        shown = (f"{k}={str(v).removeprefix('torch.')}" for k, v in self.args.items())
        return " ".join([self.family, *shown])


def rand(*sizes: int, dtype: torch.dtype = FP32, grad: bool = True) -> Tensor:
    return torch.randn(*sizes, device=DEVICE, dtype=dtype).requires_grad_(grad)


def ints(high: int, *sizes: int) -> Tensor:
    return torch.randint(0, high, sizes, device=DEVICE)


def module(made: nn.Module, x: Callable[[], Tensor]) -> Call:
    given = x()
    return lambda: made(given)


def matmul_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16, FP16):
        for m, k, n in ((2048, 1024, 4096), (6272, 1280, 5120), (77, 300, 129), (512, 50257, 768)):
            yield Case(
                "linear",
                dict(dtype=dtype, m=m, k=k, n=n),
                lambda dtype=dtype, m=m, k=k, n=n: module(
                    nn.Linear(k, n, device=DEVICE, dtype=dtype), lambda: rand(m, k, dtype=dtype)
                ),
            )
        yield Case(
            "linear3d",
            dict(dtype=dtype),
            lambda dtype=dtype: module(
                nn.Linear(640, 2560, device=DEVICE, dtype=dtype),
                lambda: rand(12, 257, 640, dtype=dtype),
            ),
        )
        yield Case(
            "linear_nobias_transposed",
            dict(dtype=dtype),
            lambda dtype=dtype: module(
                nn.Linear(512, 2048, bias=False, device=DEVICE, dtype=dtype),
                lambda: rand(512, 3000, dtype=dtype).t(),
            ),
        )
        yield Case(
            "baddbmm", dict(dtype=dtype),
            lambda dtype=dtype: (
                lambda a, b, c: lambda: torch.baddbmm(a, b, c)
            )(rand(24, 384, 384, dtype=dtype), rand(24, 384, 80, dtype=dtype), rand(24, 80, 384, dtype=dtype)),
        )  # fmt: skip
        yield Case(
            "einsum", dict(dtype=dtype),
            lambda dtype=dtype: (lambda a, b: lambda: torch.einsum("bthd,bshd->bhts", a, b))(
                rand(4, 300, 12, 64, dtype=dtype), rand(4, 200, 12, 64, dtype=dtype)
            ),
        )  # fmt: skip
    yield Case("mv", {}, lambda: (lambda a, b: lambda: a @ b)(rand(5000, 3000), rand(3000)))
    yield Case("dot", {}, lambda: (lambda a, b: lambda: a @ b)(rand(300_000), rand(300_000)))


REDUCE_SHAPES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((4096, 4096), 0),
    ((4096, 4096), 1),
    ((4096, 4096), None),
    ((100, 1000), 0),
    ((100000, 64), 0),
    ((100001, 66), 0),
    ((64, 100000), 1),
    ((3, 1000003), 1),
    ((8, 128, 56, 56), (0, 2, 3)),
    ((8, 96, 57, 57), (0, 2, 3)),
    ((32, 197, 768), 1),
    ((32, 197, 768), (0, 1)),
    ((1_000_000,), None),
    ((1023,), None),
    ((16, 12, 512, 512), (0,)),
    ((2048, 50257), -1),
)


def reduce_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16):
        for sizes, dim in REDUCE_SHAPES:
            for op in ("sum", "mean", "amax", "norm"):
                yield Case(
                    "reduce", dict(op=op, dtype=dtype, sizes=list(sizes), dim=dim),
                    lambda op=op, dtype=dtype, sizes=sizes, dim=dim: reduce_call(op, rand(*sizes, dtype=dtype, grad=False), dim),
                    grad=False,
                )  # fmt: skip
    for op in (
        "var",
        "std",
        "argmax",
        "prod",
        "any",
        "max",
        "logsumexp",
        "cumsum",
        "count_nonzero",
    ):
        for sizes, dim in (((4096, 4096), 0), ((4096, 4096), 1), ((1_000_000,), 0)):
            yield Case(
                "reduce", dict(op=op, dtype=FP32, sizes=list(sizes), dim=dim),
                lambda op=op, sizes=sizes, dim=dim: reduce_call(op, rand(*sizes, grad=False), dim),
                grad=False,
            )  # fmt: skip
    yield Case(
        "reduce", dict(op="sum", dtype=BF16, sizes=[2200, 1_000_003], dim=None),
        lambda: (lambda x: lambda: x.sum())(torch.zeros(2200, 1_000_003, device=DEVICE, dtype=BF16)), grad=False,
    )  # fmt: skip
    yield Case(
        "reduce", dict(op="sum", dtype=FP32, channels_last=True),
        lambda: (lambda x: lambda: x.sum((0, 2, 3)))(rand(16, 192, 56, 56, grad=False).to(memory_format=torch.channels_last)), grad=False,
    )  # fmt: skip


def reduce_call(op: str, x: Tensor, dim: Any) -> Call:
    dims = {} if dim is None else {"dim": dim}
    if op == "norm":
        return lambda: torch.linalg.vector_norm(x, **dims)
    if op == "amax" and dim is None:
        return lambda: x.amax()
    return lambda: getattr(x, op)(**dims)


CONVS: tuple[tuple[int, ...], ...] = (
    # batch, in, out, size, kernel, stride, padding, groups
    (32, 3, 64, 224, 7, 2, 3, 1), (32, 64, 64, 56, 1, 1, 0, 1), (32, 64, 64, 56, 3, 1, 1, 1),
    (32, 64, 256, 56, 1, 1, 0, 1), (32, 256, 64, 56, 1, 1, 0, 1), (32, 256, 128, 56, 1, 1, 0, 1),
    (32, 128, 128, 56, 3, 2, 1, 1), (32, 128, 512, 28, 1, 1, 0, 1), (32, 256, 512, 56, 1, 2, 0, 1),
    (32, 256, 256, 28, 3, 2, 1, 1), (32, 256, 256, 14, 3, 1, 1, 1), (32, 512, 1024, 28, 1, 2, 0, 1),
    (32, 512, 512, 14, 3, 2, 1, 1), (32, 512, 2048, 7, 1, 1, 0, 1), (32, 2048, 512, 7, 1, 1, 0, 1),
    (16, 3, 128, 224, 4, 4, 0, 1), (16, 128, 128, 56, 7, 1, 3, 128), (16, 256, 256, 28, 7, 1, 3, 256),
    (16, 128, 256, 56, 2, 2, 0, 1), (4, 320, 320, 64, 3, 1, 1, 1), (4, 640, 320, 64, 3, 1, 1, 1),
    (4, 4, 320, 64, 3, 1, 1, 1), (4, 320, 4, 64, 3, 1, 1, 1), (8, 3, 32, 128, 3, 1, 1, 1),
    (8, 96, 96, 112, 3, 1, 1, 96), (8, 48, 80, 37, 5, 2, 2, 1), (64, 16, 16, 32, 3, 1, 1, 1),
    (8, 128, 128, 64, 3, 1, 1, 4), (1, 64, 128, 512, 3, 1, 1, 1), (8, 256, 3, 256, 1, 1, 0, 1),
)  # fmt: skip


def conv_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16, FP16):
        for shape in CONVS:
            for channels_last in (False, True):
                names = ("B", "ci", "co", "size", "k", "stride", "pad", "groups")
                args = dict(
                    dtype=dtype, channels_last=channels_last, **dict(zip(names, shape, strict=True))
                )
                yield Case(
                    "conv2d", args,
                    lambda dtype=dtype, shape=shape, cl=channels_last: conv_call(dtype, cl, *shape),
                )  # fmt: skip


def conv_call(
    dtype: torch.dtype, channels_last: bool, b: int, ci: int, co: int, size: int, k: int, stride: int,
    pad: int, groups: int,
) -> Call:  # fmt: skip
    x = rand(b, ci, size, size, dtype=dtype)
    conv = nn.Conv2d(ci, co, k, stride, pad, groups=groups, device=DEVICE, dtype=dtype)
    if channels_last:
        x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        conv = conv.to(memory_format=torch.channels_last)
    return lambda: conv(x)


def other_conv_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16):
        yield Case("conv_transpose2d", dict(dtype=dtype), lambda dtype=dtype: module(
            nn.ConvTranspose2d(256, 128, 2, 2, device=DEVICE, dtype=dtype), lambda: rand(8, 256, 32, 32, dtype=dtype)))  # fmt: skip
        yield Case("conv1d", dict(dtype=dtype), lambda dtype=dtype: module(
            nn.Conv1d(80, 512, 3, padding=1, device=DEVICE, dtype=dtype), lambda: rand(16, 80, 3000, dtype=dtype)))  # fmt: skip
        yield Case("conv3d", dict(dtype=dtype), lambda dtype=dtype: module(
            nn.Conv3d(16, 32, 3, padding=1, device=DEVICE, dtype=dtype), lambda: rand(2, 16, 16, 64, 64, dtype=dtype)))  # fmt: skip
        yield Case("conv2d_dilated", dict(dtype=dtype), lambda dtype=dtype: module(
            nn.Conv2d(64, 64, 3, padding=2, dilation=2, device=DEVICE, dtype=dtype), lambda: rand(8, 64, 65, 65, dtype=dtype)))  # fmt: skip


def norm_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16):
        for rows, n in (
            (8192, 512),
            (100000, 96),
            (197 * 64, 1280),
            (65537, 64),
            (300, 8192),
            (2_000_000, 32),
        ):
            yield Case("layer_norm", dict(dtype=dtype, rows=rows, n=n), lambda dtype=dtype, rows=rows, n=n: module(
                nn.LayerNorm(n, device=DEVICE, dtype=dtype), lambda: rand(rows, n, dtype=dtype)))  # fmt: skip
            yield Case("rms_norm", dict(dtype=dtype, rows=rows, n=n), lambda dtype=dtype, rows=rows, n=n: module(
                nn.RMSNorm(n, device=DEVICE, dtype=dtype), lambda: rand(rows, n, dtype=dtype)))  # fmt: skip
        for shape, groups in (((4, 320, 64, 64), 32), ((2, 640, 33, 33), 32), ((16, 64, 128), 4)):
            yield Case("group_norm", dict(dtype=dtype, shape=list(shape), groups=groups), lambda dtype=dtype, shape=shape, groups=groups: module(
                nn.GroupNorm(groups, shape[1], device=DEVICE, dtype=dtype), lambda: rand(*shape, dtype=dtype)))  # fmt: skip
        for shape in ((32, 64, 112, 112), (32, 2048, 7, 7), (4096, 512)):
            for cl in (False, True):
                if cl and len(shape) != 4:
                    continue
                yield Case("batch_norm", dict(dtype=dtype, shape=list(shape), channels_last=cl),
                           lambda dtype=dtype, shape=shape, cl=cl: batch_norm_call(dtype, shape, cl))  # fmt: skip
        yield Case("instance_norm", dict(dtype=dtype), lambda dtype=dtype: module(
            nn.InstanceNorm2d(64, affine=True, device=DEVICE, dtype=dtype), lambda: rand(8, 64, 128, 128, dtype=dtype)))  # fmt: skip


def batch_norm_call(dtype: torch.dtype, shape: tuple[int, ...], channels_last: bool) -> Call:
    x = rand(*shape, dtype=dtype)
    if channels_last:
        x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    norm = kind(shape[1], device=DEVICE)
    if dtype is not FP32:  # as under autocast: statistics stay fp32
        return lambda: norm(x)
    return lambda: norm(x)


def index_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16):
        for vocab, tokens, dim in (
            (30522, 4096, 768),
            (128256, 16384, 1024),
            (10000, 3072, 512),
            (10000, 3073, 512),
            (2, 5000, 768),
            (512, 512, 768),
        ):
            yield Case("embedding", dict(dtype=dtype, V=vocab, T=tokens, d=dim), lambda dtype=dtype, v=vocab, t=tokens, d=dim: (
                lambda i, e: lambda: e(i))(ints(v, t), nn.Embedding(v, d, device=DEVICE, dtype=dtype)))  # fmt: skip
        yield Case("embedding_padding", dict(dtype=dtype), lambda dtype=dtype: (
            lambda i, e: lambda: e(i))(ints(30522, 16, 128), nn.Embedding(30522, 768, padding_idx=0, device=DEVICE, dtype=dtype)))  # fmt: skip
        yield Case("embedding_bag", dict(dtype=dtype), lambda dtype=dtype: (
            lambda i, e: lambda: e(i))(ints(20000, 256, 32), nn.EmbeddingBag(20000, 128, mode="sum", device=DEVICE, dtype=dtype)))  # fmt: skip
        yield Case("index", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, i: lambda: x[i])(rand(50000, 256, dtype=dtype), ints(50000, 20000)))  # fmt: skip
        yield Case("index2", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, i, j: lambda: x[i, j])(rand(64, 512, 256, dtype=dtype), ints(64, 3000), ints(512, 3000)))  # fmt: skip
        yield Case("bool_index", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, i: lambda: x[i])(rand(50000, 64, dtype=dtype), torch.arange(50000, device=DEVICE) % 2 == 0))  # fmt: skip
        yield Case("index_add", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, i, s: lambda: x.index_add(0, i, s))(rand(8192, 1024, dtype=dtype), ints(8192, 16384), rand(16384, 1024, dtype=dtype)))  # fmt: skip
        yield Case("scatter_reduce", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, i, s: lambda: x.scatter_reduce(0, i, s, "sum"))(rand(1000, 64, dtype=dtype), ints(1000, 5000, 64), rand(5000, 64, dtype=dtype)))  # fmt: skip
        yield Case("masked_fill", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, m: lambda: x.masked_fill(m, 0.0))(rand(64, 512, 512, dtype=dtype), ints(2, 64, 512, 512).bool()))  # fmt: skip
        yield Case("where", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, m: lambda: torch.where(m, x, 0.0))(rand(64, 512, 512, dtype=dtype), ints(2, 64, 512, 512).bool()))  # fmt: skip


SIZES = (100, 1024, 4097, 50_000, 300_000, 2_000_003, 40_000_000)


def sort_cases() -> Iterator[Case]:
    ops: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "sort": lambda x, i: x.sort(), "sort_int": lambda x, i: i.sort(), "sort_stable": lambda x, i: x.sort(stable=True),
        "topk": lambda x, i: x.topk(50), "topk_5000": lambda x, i: x.topk(min(5000, x.numel())),
        "unique": lambda x, i: i.unique(), "unique_inverse": lambda x, i: i.unique(return_inverse=True, return_counts=True),
        "nonzero": lambda x, i: i.nonzero(), "masked_select": lambda x, i: x.masked_select(i > 500),
        "multinomial_replacement": lambda x, i: x[:100_000].multinomial(10, replacement=True), "randperm": lambda x, i: torch.randperm(x.numel(), device=DEVICE),
        "cumsum": lambda x, i: x.cumsum(0), "cumsum_int": lambda x, i: i.cumsum(0), "bincount": lambda x, i: i.bincount(),
        "kthvalue": lambda x, i: x.kthvalue(7), "median": lambda x, i: x.median(), "argsort": lambda x, i: x.argsort(),
        "searchsorted": lambda x, i: torch.searchsorted(x, x), "histc": lambda x, i: x.histc(100), "argmax": lambda x, i: x.argmax(),
    }  # fmt: skip
    for n in SIZES:
        for op, call in ops.items():
            yield Case("index_ops", dict(op=op, n=n), lambda n=n, call=call: (
                lambda x, i: lambda: call(x, i))(torch.rand(n, device=DEVICE), ints(1000, n)), grad=False)  # fmt: skip
    for sizes in ((64, 1000), (4096, 128), (16, 100_000), (1000, 5000), (8, 2_000_000)):
        for op in ("sort", "topk", "cumsum", "argsort", "median"):
            yield Case("index_ops", dict(op=op, sizes=list(sizes)), lambda sizes=sizes, op=op: (
                lambda x: lambda: x.topk(8) if op == "topk" else x.median(-1) if op == "median" else getattr(x, op)(-1))(
                    torch.rand(*sizes, device=DEVICE)), grad=False)  # fmt: skip


def loss_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16):
        yield Case("cross_entropy", dict(dtype=dtype, smoothing=0.1), lambda dtype=dtype: (
            lambda x, t: lambda: F.cross_entropy(x, t, label_smoothing=0.1))(rand(1024, 32000, dtype=dtype), ints(32000, 1024)))  # fmt: skip
        yield Case("cross_entropy2d", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, t: lambda: F.cross_entropy(x, t))(rand(8, 21, 128, 128, dtype=dtype), ints(21, 8, 128, 128)))  # fmt: skip
        yield Case("mse", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, t: lambda: F.mse_loss(x, t))(rand(32, 3, 256, 256, dtype=dtype), rand(32, 3, 256, 256, dtype=dtype, grad=False)))  # fmt: skip
        yield Case("bce_logits", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, t: lambda: F.binary_cross_entropy_with_logits(x, t))(rand(4096, 1000, dtype=dtype), torch.rand(4096, 1000, device=DEVICE).to(dtype)))  # fmt: skip
        yield Case("kl_div", dict(dtype=dtype), lambda dtype=dtype: (
            lambda x, t: lambda: F.kl_div(x.log_softmax(-1), t, reduction="batchmean"))(rand(2048, 8192, dtype=dtype), torch.rand(2048, 8192, device=DEVICE).to(dtype)))  # fmt: skip
        for f in ("softmax", "log_softmax"):
            yield Case(f, dict(dtype=dtype), lambda dtype=dtype, f=f: (
                lambda x: lambda: getattr(x, f)(-1))(rand(8, 16, 512, 512, dtype=dtype)))  # fmt: skip
        for f in ("gelu", "silu", "mish", "softplus", "glu", "leaky_relu"):
            yield Case(f, dict(dtype=dtype), lambda dtype=dtype, f=f: (
                lambda x: lambda: getattr(F, f)(x))(rand(4096, 3072, dtype=dtype)))  # fmt: skip
        yield Case("dropout", dict(dtype=dtype), lambda dtype=dtype: (lambda x: lambda: F.dropout(x, 0.2))(rand(5000, 333, dtype=dtype)))  # fmt: skip


def picture_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16):
        calls: dict[str, Callable[[Tensor], Tensor]] = {
            "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
            "avg_pool": lambda x: F.avg_pool2d(x, 2), "adaptive_avg": lambda x: F.adaptive_avg_pool2d(x, (7, 7)), "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (7, 7)),
            "pad_reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), "pad": lambda x: F.pad(x, (1, 1, 1, 1)), "unfold": lambda x: F.unfold(x, 3, padding=1),
            "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2), "roll": lambda x: x.roll((3, 3), (2, 3)), "cat": lambda x: torch.cat([x, x, x], 1),
            "stack": lambda x: torch.stack([x, x]), "contiguous": lambda x: x.transpose(1, 3).contiguous(), "float": lambda x: x.double(), "flip": lambda x: x.flip(2),
            "repeat": lambda x: x.repeat(1, 2, 1, 1), "repeat_interleave": lambda x: x.repeat_interleave(2, 1), "mean": lambda x: x.mean((2, 3)), "max_pool_cl": lambda x: F.max_pool2d(x.to(memory_format=torch.channels_last), 3, 2, 1),
        }  # fmt: skip
        for f, call in calls.items():
            yield Case("picture", dict(op=f, dtype=dtype), lambda dtype=dtype, call=call: (
                lambda x: lambda: call(x))(rand(8, 64, 96, 96, dtype=dtype)))  # fmt: skip


SDPA: tuple[tuple[Any, ...], ...] = (
    # batch, heads, kv heads, query length, key length, head size, causal, mask, dropout
    (4, 16, 16, 1024, 1024, 64, True, None, 0.0), (4, 16, 4, 1024, 1024, 128, True, None, 0.0), (2, 8, 8, 777, 777, 64, False, None, 0.0),
    (2, 8, 8, 500, 300, 64, False, None, 0.1), (2, 8, 8, 256, 256, 72, True, None, 0.0), (2, 8, 8, 256, 256, 40, False, None, 0.0),
    (2, 8, 8, 512, 512, 128, False, "float", 0.0), (2, 8, 8, 512, 512, 64, False, "bool", 0.0), (2, 8, 8, 333, 333, 64, False, "full", 0.0),
    (16, 8, 8, 49, 49, 32, False, "head", 0.0), (1, 1, 1, 4096, 4096, 512, False, None, 0.0), (2, 8, 8, 512, 512, 192, True, None, 0.0),
    (2, 8, 8, 512, 512, 160, False, None, 0.0), (8, 12, 12, 128, 128, 64, False, None, 0.125), (2, 6, 6, 1024, 1024, 61, True, None, 0.0),
    (2, 8, 1, 1024, 1024, 64, True, None, 0.0), (4, 8, 8, 64, 77, 40, False, None, 0.0), (4, 8, 8, 4096, 77, 40, False, None, 0.0),
)  # fmt: skip


def sdpa_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16, FP16):
        for shape in SDPA:
            for backend in (None, "flash", "efficient"):
                if backend and (dtype is FP32 and backend == "flash"):
                    continue
                names = ("B", "H", "KV", "T", "S", "d", "causal", "mask", "dropout")
                args = dict(dtype=dtype, backend=backend, **dict(zip(names, shape, strict=True)))
                yield Case("sdpa", args, lambda dtype=dtype, backend=backend, shape=shape: sdpa_call(dtype, backend, *shape))  # fmt: skip


def sdpa_inputs(
    dtype: torch.dtype, b: int, h: int, kv: int, t: int, s: int, d: int, mask: str | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    q, k, v = (
        rand(b, h, t, d, dtype=dtype),
        rand(b, kv, s, d, dtype=dtype),
        rand(b, kv, s, d, dtype=dtype),
    )
    m: Tensor | None = None
    if mask == "bool":
        m = torch.ones(b, 1, t, s, device=DEVICE, dtype=torch.bool).tril()
    elif mask is not None:
        heads = {"float": 1, "full": h, "head": h}[mask]
        m = torch.zeros(1 if mask == "head" else b, heads, t, s, device=DEVICE, dtype=dtype)
    return q, k, v, m


def sdpa_call(
    dtype: torch.dtype, backend: str | None, b: int, h: int, kv: int, t: int, s: int, d: int, causal: bool,
    mask: str | None, dropout: float,
) -> Call:  # fmt: skip
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v, m = sdpa_inputs(dtype, b, h, kv, t, s, d, mask)

    def call() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, m, dropout, causal, enable_gqa=kv != h)

    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }
    if backend is None:
        return call

    def forced() -> Tensor:
        with sdpa_kernel(kinds[backend]):
            return call()

    return forced


def rnn_cases() -> Iterator[Case]:
    for dtype in (FP32, BF16, FP16):
        for kind in ("LSTM", "GRU", "RNN"):
            for b, t, i, h, layers, bi, drop in (
                (16, 64, 256, 256, 1, False, 0.0), (64, 100, 300, 512, 2, True, 0.2), (8, 200, 128, 650, 2, False, 0.0),
                (128, 35, 200, 200, 2, False, 0.0), (32, 50, 512, 1024, 4, False, 0.0), (1, 500, 80, 320, 3, True, 0.0),
            ):  # fmt: skip
                args = dict(
                    dtype=dtype,
                    kind=kind,
                    B=b,
                    T=t,
                    input=i,
                    hidden=h,
                    layers=layers,
                    bi=bi,
                    dropout=drop,
                )
                yield Case("rnn", args, lambda dtype=dtype, kind=kind, b=b, t=t, i=i, h=h, n=layers, bi=bi, drop=drop: (
                    lambda x, net: lambda: net(x)[0])(rand(b, t, i, dtype=dtype), getattr(nn, kind)(
                        i, h, n, batch_first=True, bidirectional=bi, dropout=drop, device=DEVICE, dtype=dtype)))  # fmt: skip


def optimizer_cases() -> Iterator[Case]:
    for name, options in (
        ("AdamW", dict(fused=True)),
        ("SGD", dict(momentum=0.9, nesterov=True)),
        ("SGD", dict(fused=True, momentum=0.9)),
        ("Adam", dict(amsgrad=True)),
        ("AdamW", dict(capturable=True)),
        ("Adamax", {}),
        ("Rprop", {}),
        ("Adadelta", {}),
        ("Adagrad", dict(fused=True)),
        ("Adafactor", {}),
        ("Muon", {}),
    ):
        yield Case("optimizer", dict(name=name, **options), lambda name=name, options=options: optimizer_call(name, options), grad=False)  # fmt: skip
    yield Case("clip_grad_norm", {}, lambda: (lambda ps: lambda: nn.utils.clip_grad_norm_(ps, 1.0))(parameters(mixed=True)), grad=False)  # fmt: skip
    yield Case("clip_grad_norm", dict(norm="inf"), lambda: (lambda ps: lambda: nn.utils.clip_grad_norm_(ps, 1.0, norm_type=float("inf")))(parameters(mixed=True)), grad=False)  # fmt: skip
    yield Case("scaler", {}, scaler_call, grad=False)


def parameters(mixed: bool = False) -> list[Tensor]:
    sizes = [(1000, 700), (700,), (3, 5000), (1 << 20,), (257, 129)] * (3 if mixed else 1)
    made = [rand(*s) for s in sizes if len(s) > 1 or mixed]
    for p in made:
        p.grad = torch.randn_like(p)
    return made


def optimizer_call(name: str, options: dict[str, Any]) -> Call:
    optimizer = getattr(torch.optim, name)(parameters(mixed=name != "Muon"), lr=1e-3, **options)
    return lambda: optimizer.step()


def scaler_call() -> Call:
    ps = parameters(mixed=True)
    optimizer = torch.optim.SGD(ps, lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(torch.ones((), device=DEVICE))

    def call() -> None:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    return call


def linalg_cases() -> Iterator[Case]:
    calls: dict[str, Callable[[Tensor], Any]] = {
        "cholesky": lambda a: torch.linalg.cholesky(a @ a.mT + 300 * torch.eye(300, device=DEVICE)), "inv": torch.linalg.inv, "solve": lambda a: torch.linalg.solve(a, a),
        "qr": torch.linalg.qr, "svd": torch.linalg.svd, "eigh": lambda a: torch.linalg.eigh(a + a.mT), "det": torch.linalg.det, "rfft": lambda a: torch.fft.rfft(a), "fft2": lambda a: torch.fft.fft2(a),
        "stft": lambda a: torch.stft(a.flatten(), 512, 128, window=torch.hann_window(512, device=DEVICE), return_complex=True),
    }  # fmt: skip
    for op, call in calls.items():
        yield Case("linalg", dict(op=op), lambda call=call: (lambda a: lambda: call(a))(rand(300, 300, grad=False)), grad=False)  # fmt: skip


def all_cases() -> list[Case]:
    makers = (matmul_cases, reduce_cases, conv_cases, other_conv_cases, norm_cases, index_cases, sort_cases, loss_cases, picture_cases, sdpa_cases, rnn_cases, optimizer_cases, linalg_cases)  # fmt: skip
    return [case for maker in makers for case in maker()]
