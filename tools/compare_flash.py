#!/usr/bin/env python3
"""flash_attn's stand-in against aten's own FlashAttention kernel, on a real GPU.

    tools/compare_flash.py            # on the GPU: both, side by side
    tools/compare_flash.py --virtual  # anywhere: the stand-in alone, as JSON

For each case: bytes kept after forward, the peak of forward, the peak of backward.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Case(NamedTuple):
    name: str
    batch: int
    rows: int
    heads: int
    kv_heads: int
    head: int
    packed: bool = False
    dropout: float = 0.0
    keys: int = 0  # 0: as many as rows


CASES = [
    Case("batched", 2, 1024, 16, 16, 64),
    Case("long", 1, 8192, 16, 16, 128),
    Case("odd rows", 3, 777, 12, 12, 64),
    Case("head of 80", 2, 1024, 8, 8, 80),
    Case("head of 96", 2, 1024, 8, 8, 96),
    Case("head of 192", 2, 512, 8, 8, 192),
    Case("head of 256", 2, 512, 8, 8, 256),
    Case("few key heads", 2, 1024, 16, 4, 64),
    Case("dropout", 2, 1024, 16, 16, 64, dropout=0.1),
    Case("packed", 4, 512, 16, 16, 64, packed=True),
    Case("packed, few key heads", 4, 500, 16, 4, 128, packed=True),
    Case("one row of queries", 1, 1, 8, 8, 64, keys=65536),
    Case("few rows of queries", 2, 64, 8, 8, 128, keys=8192),
]


def attention(case: Case) -> Callable[..., torch.Tensor]:
    """flash_attn's where it is there, aten's where it is not."""
    begins = torch.arange(case.batch + 1, dtype=torch.int32, device="cuda") * case.rows
    try:
        from flash_attn import (  # type: ignore[import-not-found]
            flash_attn_func,
            flash_attn_varlen_func,
        )
    except ImportError:
        return lambda q, k, v: _aten(case, begins, q, k, v)
    if not case.packed:
        return lambda q, k, v: flash_attn_func(q, k, v, case.dropout, causal=True)
    sizes = (begins, begins, case.rows, case.rows)
    return lambda q, k, v: flash_attn_varlen_func(q, k, v, *sizes, case.dropout, causal=True)


def _aten(case: Case, begins: torch.Tensor, q: Any, k: Any, v: Any) -> torch.Tensor:
    ends = (begins, begins) if case.packed else (None, None)
    sizes = (case.rows, case.keys or case.rows)
    forward = torch.ops.aten._flash_attention_forward
    result: torch.Tensor = forward(q, k, v, *ends, *sizes, case.dropout, True, False)[0]
    return result


def measured(case: Case) -> list[int]:
    def tensor(rows: int, heads: int) -> torch.Tensor:
        shape = (case.batch * rows,) if case.packed else (case.batch, rows)
        kind = {"device": "cuda", "dtype": torch.bfloat16}
        return torch.empty(*shape, heads, case.head, **kind).requires_grad_()  # type: ignore[call-overload,no-any-return]

    q = tensor(case.rows, case.heads)
    k, v = (tensor(case.keys or case.rows, case.kv_heads) for _ in range(2))
    attend = attention(case)
    for _ in range(2):  # the second time, when everything is there
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out = attend(q, k, v)
        kept = torch.cuda.memory_allocated() - before
        forward = torch.cuda.max_memory_allocated() - before
        grad = torch.empty_like(out)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        gradients = torch.autograd.grad(out, (q, k, v), grad)
        backward = torch.cuda.max_memory_allocated() - before
        del out, grad, gradients
    return [kept, forward, backward]


def all_cases() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for case in CASES:
        try:
            found[case.name] = measured(case)
        except RuntimeError as error:
            found[case.name] = str(error).splitlines()[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--virtual", action="store_true")
    if parser.parse_args().virtual:
        import peakline

        with peakline.virtual_gpu("h200"):
            print(json.dumps(all_cases()))
        return
    command = [sys.executable, __file__, "--virtual"]
    stand_in = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    for name, real in all_cases().items():
        same = "same" if real == stand_in[name] else "DIFFERENT"
        print(f"{name:24} kept, forward, backward: aten {real}, stand-in {stand_in[name]}  {same}")


if __name__ == "__main__":
    main()
