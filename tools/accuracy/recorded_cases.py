# mypy: disable-error-code="misc,call-overload"
# ruff: noqa: E501 (a table of cases: one a line)
"""Operators that were recorded on a GPU by family and arguments, as calls to measure again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accuracy.op_cases import DEVICE, Call, Case, ints, rand

Args = dict[str, Any]
Maker = Callable[[Args], Call]


def apply(call: Callable[..., Any], *inputs: Any) -> Call:
    return lambda: call(*inputs)


def convolution(a: Args) -> Call:
    x = rand(a["B"], a["ci"], a["size"], a["size"], dtype=a["dtype"])
    patches = a["stride"] == a["k"]
    conv = nn.Conv2d(
        a["ci"], a["co"], a["k"], a["stride"], 0 if patches else a["k"] // 2,
        groups=a["groups"], device=DEVICE, dtype=a["dtype"],
    )  # fmt: skip
    if a["channels_last"]:
        x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        conv = conv.to(memory_format=torch.channels_last)
    return apply(conv, x)


def attention(a: Args) -> Call:
    b, h, kv, t, d, dtype = (a[k] for k in ("B", "H", "KV", "T", "d", "dtype"))
    q, k, v = (rand(b, n, t, d, dtype=dtype) for n in (h, kv, kv))
    mask = torch.zeros(b, 1, t, t, device=DEVICE, dtype=dtype) if a["mask"] else None
    return lambda: F.scaled_dot_product_attention(
        q, k, v, mask, a["dropout"], a["causal"], enable_gqa=h != kv
    )


def recurrent(a: Args) -> Call:
    net = getattr(nn, a["kind"])(
        512, 1024, a["layers"], batch_first=True, bidirectional=a["bidirectional"],
        dropout=a["dropout"], device=DEVICE, dtype=a["dtype"],
    )  # fmt: skip
    x = rand(32, 128, 512, dtype=a["dtype"])
    return lambda: net(x)[0]


def square_parameters() -> list[Tensor]:
    made = [rand(1024, 1024) for _ in range(12)]
    for p in made:
        p.grad = torch.randn_like(p)
    return made


def optimizer(a: Args) -> Call:
    options = {k: v for k, v in a.items() if k != "name"}
    return apply(getattr(torch.optim, a["name"])(square_parameters(), lr=1e-3, **options).step)


VALUE_OPS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sort": lambda x, i: x.sort(), "topk": lambda x, i: x.topk(50), "unique": lambda x, i: i.unique(),
    "nonzero": lambda x, i: i.nonzero(), "multinomial": lambda x, i: x.multinomial(10),
    "argsort": lambda x, i: x.argsort(), "median": lambda x, i: x.median(), "bincount": lambda x, i: i.bincount(),
}  # fmt: skip

FAMILIES: dict[str, Maker] = {
    "linear": lambda a: apply(nn.Linear(a["k"], a["n"], device=DEVICE, dtype=a["dtype"]), rand(a["m"], a["k"], dtype=a["dtype"])),
    "mm": lambda a: apply(torch.mm, rand(a["m"], a["k"], dtype=a["dtype"]), rand(a["k"], a["n"], dtype=a["dtype"])),
    "bmm": lambda a: apply(torch.bmm, rand(a["b"], a["m"], a["k"], dtype=a["dtype"]), rand(a["b"], a["k"], a["n"], dtype=a["dtype"])),
    "conv2d": convolution,
    "layer_norm": lambda a: apply(nn.LayerNorm(a["n"], device=DEVICE, dtype=a["dtype"]), rand(a["rows"], a["n"], dtype=a["dtype"])),
    "group_norm": lambda a: apply(nn.GroupNorm(8, 256, device=DEVICE, dtype=a["dtype"]), rand(8, 256, 64, 64, dtype=a["dtype"])),
    "batch_norm": lambda a: apply(nn.BatchNorm2d(256, device=DEVICE, dtype=a["dtype"]), rand(32, 256, 56, 56, dtype=a["dtype"])),
    "embedding": lambda a: apply(nn.Embedding(a["V"], a["d"], device=DEVICE, dtype=a["dtype"]), ints(a["V"], a["T"])),
    "cross_entropy": lambda a: (lambda x, t: lambda: F.cross_entropy(x.float(), t))(rand(a["rows"], a["V"], dtype=a["dtype"]), ints(a["V"], a["rows"])),
    "dropout": lambda a: apply(F.dropout, rand(4096, 3072, dtype=a["dtype"]), 0.1),
    "max_pool2d": lambda a: apply(F.max_pool2d, rand(32, 64, 112, 112, dtype=a["dtype"]), 3, 2, 1),
    "interpolate": lambda a: apply(F.interpolate, rand(8, 256, 64, 64, dtype=a["dtype"]), None, 2),
    "avg_pool": lambda a: apply(F.adaptive_avg_pool2d, rand(32, 2048, 7, 7, dtype=a["dtype"]), 1),
    "cumsum": lambda a: apply(torch.cumsum, rand(64, 32000, dtype=a["dtype"]), -1),
    "index_select": lambda a: apply(torch.index_select, rand(10000, 512, dtype=a["dtype"]), 0, ints(10000, 8192)),
    "index": lambda a: (lambda x, i: lambda: x[i])(rand(10000, 512, dtype=a["dtype"]), ints(10000, 8192)),
    "gather": lambda a: apply(torch.gather, rand(4096, 1000, dtype=a["dtype"]), 1, ints(1000, 4096, 10)),
    "scatter_add": lambda a: apply(torch.scatter_add, rand(4096, 512, dtype=a["dtype"]), 0, ints(4096, 8192, 512), rand(8192, 512, dtype=a["dtype"])),
    "logsumexp": lambda a: apply(torch.logsumexp, rand(4096, 32000, dtype=a["dtype"]), -1),
    "sum": lambda a: apply(torch.sum, rand(8192, 8192, dtype=a["dtype"])),
    "sdpa": attention,
    "rnn": recurrent,
    "optimizer": optimizer,
    "clip_grad_norm": lambda a: (lambda ps: lambda: nn.utils.clip_grad_norm_(ps, 1.0, foreach=a["foreach"]))(square_parameters()),
    "index_ops": lambda a: (lambda x, i: lambda: VALUE_OPS[a["op"]](x, i))(torch.rand(a["n"], device=DEVICE), ints(1000, a["n"])),
}  # fmt: skip
WITHOUT_GRADIENT = ("optimizer", "clip_grad_norm", "index_ops")


def recorded_case(family: str, args: Args) -> Case:
    typed = {k: getattr(torch, v) if k == "dtype" else v for k, v in args.items()}
    return Case(family, typed, lambda: FAMILIES[family](typed), grad=family not in WITHOUT_GRADIENT)
