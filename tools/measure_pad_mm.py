#!/usr/bin/env python3
"""Which products Inductor pads: measured on a GPU, beside what peakline's rule says.

    tools/measure_pad_mm.py -o pad_mm.jsonl          # on the GPU: 170 products, a minute or two

Inductor's own benchmark decides, as it does when it compiles: the product as it is against the
padded one, 1.1x apart. The last 50 are held out: they are never looked at to change the rule.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from typing import Any

import torch

HELD_OUT = 50


def shapes(count: int) -> list[tuple[int, int, int, str]]:
    draw = random.Random(19)

    def size(most: int) -> int:
        return int(2 ** draw.uniform(6, math.log2(most)))

    found: list[tuple[int, int, int, str]] = []
    while len(found) < count:
        m, k, n = size(16384), size(8192), size(65536)
        dtype = draw.choice(["bfloat16", "bfloat16", "float16", "float32"])
        if draw.random() < 0.6:  # one odd size among round ones, as vocabularies are
            rounded = [max(8, value // 64 * 64) for value in (m, k, n)]
            odd = draw.randrange(3)
            m, k, n = [(m, k, n)[i] if i == odd else rounded[i] for i in range(3)]
        step = 4 if dtype == "float32" else 8
        fits = (m * k + k * n + m * n) * 4 < 8 * 2**30
        if fits and any(value % step for value in (m, k, n)):
            found.append((m, k, n, dtype))
    return found


def pad(tensor: torch.Tensor, step: int) -> torch.Tensor:
    rows, columns = ((-value) % step for value in tensor.shape)
    return torch.nn.functional.pad(tensor, (0, columns, 0, rows)) if rows or columns else tensor


def measure(m: int, k: int, n: int, dtype: str) -> dict[str, Any]:
    from torch._inductor.fx_passes.pad_mm import is_mm_compute_bound
    from torch._inductor.runtime.benchmarking import benchmarker

    kind = getattr(torch, dtype)
    bound = bool(is_mm_compute_bound(m, k, n, kind))
    step = 4 if dtype == "float32" else 8
    a = torch.randn(m, k, device="cuda", dtype=kind)
    b = torch.randn(k, n, device="cuda", dtype=kind)

    def padded() -> torch.Tensor:
        return torch.mm(pad(a, step), pad(b, step))[:m, :n]

    plain_ms = float(benchmarker.benchmark_gpu(lambda: torch.mm(a, b)))
    padded_ms = float(benchmarker.benchmark_gpu(padded))
    return {"bound": bound, "plain_ms": plain_ms, "padded_ms": padded_ms}


def decision(row: dict[str, Any]) -> bool:
    return bool(row["bound"]) and row["plain_ms"] > 1.1 * row["padded_ms"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", dest="output", required=True, metavar="FILE")
    parser.add_argument("--count", type=int, default=170)
    args = parser.parse_args()
    drawn = shapes(args.count)
    real = [measure(*shape) for shape in drawn]
    torch.cuda.empty_cache()
    import peakline

    with peakline.virtual_gpu("h200"):
        ruled = [measure(*shape) for shape in drawn]
    right = [decision(a) == decision(b) for a, b in zip(real, ruled, strict=True)]
    with open(args.output, "w") as file:
        for shape, a, b in zip(drawn, real, ruled, strict=True):
            file.write(json.dumps({"shape": shape, "measured": a, "rule": b}) + "\n")
    for name, part in (("seen", right[:-HELD_OUT]), ("held out", right[-HELD_OUT:])):
        print(f"{name}: {sum(part)} of {len(part)} decided as measured")


if __name__ == "__main__":
    main()
