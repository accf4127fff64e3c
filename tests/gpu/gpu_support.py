"""What the tests on a real GPU share."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch


def fresh() -> None:
    """Nothing is left of what ran before, where CUDA ran at all."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def check_file_of_workloads(check: Callable[[Any], Any]) -> int:
    """`FILE [NAME…]` of the command line: checks each workload, and prints one line for it."""
    path, names = sys.argv[1], sys.argv[2:]
    spec = importlib.util.spec_from_file_location("workloads", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    failed = 0
    for name in names or list(module.W):
        fresh()
        try:
            print(f"exact  {name}: {check(module.W[name]('cuda'))}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0
