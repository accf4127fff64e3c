"""The largest batch that fits a budget, on a virtual GPU beside a real one.

python benchmarks/max_batch.py WORKLOADS.py TRUTH.jsonl [NAME…]

Each line of TRUTH.jsonl has a name, budget_gib and max_batch: the largest batch of which three
training steps fit, found by doubling and then halving, as here. WORKLOADS.py builds the steps.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from workload_file import chosen, load

SAME = {"gpt2": "gpt2_fp32", "gpt2_bf16": "gpt2_bf16_autocast"}  # other names of the same model


@contextlib.contextmanager
def batches_of(size: int, instead_of: int) -> Iterator[None]:
    """Random inputs whose first dimension is `instead_of` are made with `size`."""
    import torch

    def resized(sizes: Any) -> tuple[int, ...]:
        first, *rest = sizes
        return (size if first == instead_of else first, *rest)

    rand, randint = torch.rand, torch.randint
    with (
        mock.patch.object(torch, "rand", lambda *sizes, **kw: rand(*resized(sizes), **kw)),
        mock.patch.object(
            torch,
            "randint",
            lambda low, high, sizes, **kw: randint(low, high, resized(sizes), **kw),
        ),
    ):
        yield


def built_in_batch(build: Callable[[str], Any]) -> int:
    """The batch that a workload makes when nobody changes it."""
    import torch

    import peakline

    with peakline.virtual_gpu("h200"):
        inputs = build("cuda").inputs
        first = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs
        assert isinstance(first, torch.Tensor)
        return int(first.shape[0])


def fits(build: Callable[[str], Any], batch: int, usual: int, gpu: str, budget: int) -> bool:
    import torch

    import peakline

    gc.collect()
    with peakline.virtual_gpu(gpu, memory=budget):
        try:
            with batches_of(batch, usual):
                workload = build("cuda")
            for _ in range(3):
                workload.step()
        except torch.OutOfMemoryError:
            return False
    return True


def largest(try_batch: Callable[[int], bool]) -> int:
    high = 1
    while try_batch(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if try_batch(middle) else (low, middle)
    return low


def search(args: argparse.Namespace, row: dict[str, Any]) -> int:
    build = load(args.workloads).W[SAME.get(row["name"], row["name"])]
    usual = built_in_batch(build)
    budget = int(row["budget_gib"] * 2**30)
    return largest(lambda batch: fits(build, batch, usual, args.gpu, budget))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads")
    parser.add_argument("truth")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    with open(args.truth) as lines:
        rows = {row["name"]: row for row in map(json.loads, lines)}
    if args.child:
        print(f"LARGEST {search(args, rows[args.names[0]])}")
        return
    print("| Workload | Budget (GiB) | Largest batch, real | Estimated |\n|---|---:|---:|---:|")
    for name in chosen(parser, args.names, rows):
        command = [sys.executable, __file__, args.workloads, args.truth, name, "--gpu", args.gpu]
        done = subprocess.run([*command, "--child"], capture_output=True, text=True)
        found = [x.split()[1] for x in done.stdout.splitlines() if x.startswith("LARGEST ")]
        shown = found[0] if found else (done.stderr.strip().splitlines() or ["nothing"])[-1][:150]
        row = rows[name]
        print(f"| {name} | {row['budget_gib']:g} | {row['max_batch']} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
