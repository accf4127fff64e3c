#!/usr/bin/env python3
"""flash_attn's stand-in against aten's own FlashAttention kernel, on a real GPU.

    tools/compare_flash.py            # on the GPU: both, side by side
    tools/compare_flash.py --virtual  # anywhere: the stand-in alone, as JSON

For each case: bytes kept after forward, the peak of forward, the peak of backward.

Every number is above what was allocated before, so nothing of an earlier call may still be there
then. autograd's own thread may hold gradients for a moment after Python let them go: each call
waits until they are gone, and says how much was late. On a GPU the peak of backward is also added
up from the allocator's own history, which reads no totals.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
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


class Peaks(NamedTuple):
    kept: int  # after forward
    forward: int
    backward: int
    late: int  # bytes of an earlier call that were still there when the next one could have begun


def measured(case: Case) -> Peaks:
    """Of the second call, when everything is there that stays."""
    q, k, v = inputs(case)
    attend = attention(case)
    call(attend, q, k, v)
    late = waited()
    return Peaks(*call(attend, q, k, v), late)


def inputs(case: Case) -> list[torch.Tensor]:
    def tensor(rows: int, heads: int) -> torch.Tensor:
        shape = (case.batch * rows,) if case.packed else (case.batch, rows)
        kind = {"device": "cuda", "dtype": torch.bfloat16}
        return torch.empty(*shape, heads, case.head, **kind).requires_grad_()  # type: ignore[call-overload,no-any-return]

    keys = case.keys or case.rows
    return [tensor(case.rows, case.heads), *(tensor(keys, case.kv_heads) for _ in range(2))]


def call(attend: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[int, int, int]:
    """Forward and backward once. Nothing of it is left but what autograd's thread holds."""
    before = begin()
    out = attend(*inputs)
    kept = torch.cuda.memory_allocated() - before
    forward = torch.cuda.max_memory_allocated() - before
    grad = torch.empty_like(out)
    before = begin()
    torch.autograd.grad(out, inputs, grad)
    return kept, forward, torch.cuda.max_memory_allocated() - before


def begin() -> int:
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def waited(most_seconds: float = 1.0) -> int:
    """Bytes that went away while nothing was called: sleeping lets autograd's thread go on."""
    gc.collect()
    held = torch.cuda.memory_allocated()
    quiet = 0
    end = time.monotonic() + most_seconds
    now = held
    while quiet < 5 and time.monotonic() < end:
        time.sleep(0.002)
        quiet = quiet + 1 if torch.cuda.memory_allocated() == now else 0
        now = torch.cuda.memory_allocated()
    return held - now


def traced(case: Case) -> int:
    """The peak of backward by the allocator's history: what was asked for and given back, in order.
    Sizes are rounded as the allocator rounds them."""
    q, k, v = inputs(case)
    attend = attention(case)
    call(attend, q, k, v)
    waited()
    out = attend(q, k, v)
    grad = torch.empty_like(out)
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=10_000)
    torch.autograd.grad(out, (q, k, v), grad)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    live = highest = 0
    for event in trace:
        if event["action"] == "alloc":
            live += -(-event["size"] // 512) * 512
        elif event["action"] == "free_completed":
            live -= -(-event["size"] // 512) * 512
        highest = max(highest, live)
    return highest


def all_cases(one: Callable[[Case], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for case in CASES:
        try:
            found[case.name] = one(case)
        except RuntimeError as error:
            found[case.name] = str(error).splitlines()[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--virtual", action="store_true")
    if parser.parse_args().virtual:
        import peakline

        with peakline.virtual_gpu("h200"):
            print(json.dumps(all_cases(measured)))
        return
    command = [sys.executable, __file__, "--virtual"]
    stand_in = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    real, history = all_cases(measured), all_cases(traced)
    for name, peaks in real.items():
        print(row(name, peaks, history[name], stand_in[name]))


def row(name: str, real: Any, history: Any, stand_in: Any) -> str:
    if not isinstance(real, Peaks):
        return f"{name:24} failed: {real}"
    same = "same" if [*real[:3]] == stand_in[:3] else "DIFFERENT"
    return (
        f"{name:24} kept, forward, backward: aten {[*real[:3]]}, stand-in {stand_in[:3]}  {same}; "
        f"backward by history {history}, late {real.late}"
    )


if __name__ == "__main__":
    main()
