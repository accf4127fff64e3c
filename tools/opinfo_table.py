"""Runs torch's own list of operators through the virtual GPU, and compares with the CPU.

    python tools/opinfo_table.py [--jobs N] [--samples N] [--only PATTERN] [--json F] [--markdown F]

Every entry of torch.testing's operator database that supports CUDA is run forward and backward on a
few of its own samples, once on the CPU and once on the virtual GPU. Shapes, types and devices must
be the same, and strides where torch promises them: of loops over elements and of views. Entries run
in processes of their own, some at a time, so that a crash or a hang is an entry and not the end.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ENTRIES_PER_PROCESS = 24
SECONDS_PER_ENTRY = 60

RIGHT, REFUSED, WRONG, FAILED = "right", "refused", "wrong", "failed"
# What no user should read: a bug of ours, or a name that means nothing to them.
INTERNAL = ("INTERNAL ASSERT", "privateuse", "DispatchStub", "Cannot access", "Could not run")


@dataclass
class Result:
    """How an entry fared: its status, and why."""

    name: str
    status: str
    reason: str = ""
    samples: int = 0


# Sizes that torch wants in host memory, also beside tensors on cuda.
SECOND_ON_HOST = {"tensor_split"}
# The CPU has no kernel; torch's own shape functions are the reference.
ONLY_CUDA = {
    "torch.ops.aten._efficient_attention_forward",
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._flash_attention_forward_no_dropout_inplace",
}


class Mismatch(Exception):
    """The virtual GPU gave something else than the CPU."""


# --- One entry, in a process that has torch. ---


def entries() -> list[Any]:
    stand_in_for_expecttest()
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.supported_dtypes("cuda")]


def stand_in_for_expecttest() -> None:
    """torch.testing wants this package for tests of its own; the list of operators does not."""
    if importlib.util.find_spec("expecttest") is None:
        module: Any = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
        sys.modules["expecttest"] = module


def entry_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def pick_dtype(op: Any) -> Any:
    """Of the types that both sides know: float, else the first in a fixed order."""
    import torch

    both = set(op.supported_dtypes("cuda")) & set(op.supported_dtypes("cpu"))
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64):
        if dtype in both:
            return dtype
    return sorted(both or op.supported_dtypes("cuda"), key=str)[0]


def on_device(value: Any, device: str) -> Any:
    """The sample with its tensors moved: layouts stay, and leaves that need gradients."""
    import torch
    from torch.utils._pytree import tree_map

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return moved(leaf, device).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device):
            return torch.device(device)
        return device if leaf == "cpu" and isinstance(leaf, str) else leaf

    return tree_map(move, value)


def moved(tensor: Any, device: str) -> Any:
    """With the whole of its storage, where it is a part of one: `as_strided` sees that."""
    import torch

    detached = tensor.detach()
    if tensor.is_cuda:
        return detached
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return detached.to(device)
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return whole.to(device).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def tensors_of(value: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def promises_strides(op: Any, inputs: list[Any], output: Any) -> bool:
    """Loops over elements keep the order of dimensions; a view has the strides of its base."""
    import torch
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

    if output.layout != torch.strided:
        return False
    if isinstance(op, (BinaryUfuncInfo, UnaryUfuncInfo)):
        return True
    return any(
        tensor.layout == torch.strided
        and tensor.untyped_storage()._cdata == output.untyped_storage()._cdata
        for tensor in inputs
    )


def compare(expected: list[Any], got: list[Any], strides: Callable[[Any], bool], what: str) -> None:
    if len(expected) != len(got):
        raise Mismatch(f"{what}: {len(got)} tensors in place of {len(expected)}")
    for one, two in zip(expected, got, strict=True):
        if one is None or two is None:
            if one is not two:
                raise Mismatch(f"{what}: a tensor on one side alone")
            continue
        if one.shape != two.shape:
            raise Mismatch(f"{what}: shape {tuple(two.shape)} in place of {tuple(one.shape)}")
        if one.dtype != two.dtype:
            raise Mismatch(f"{what}: {two.dtype} in place of {one.dtype}")
        if one.layout != two.layout:
            raise Mismatch(f"{what}: {two.layout} in place of {one.layout}")
        if strides(one) and one.numel() > 1 and one.stride() != two.stride():
            raise Mismatch(f"{what}: strides {two.stride()} in place of {one.stride()}")


def run(op: Any, sample: Any) -> Any:
    return op(sample[0], *sample[1], **sample[2])


def reference_of(op: Any) -> Any:
    """Kernels that are compiled when they are called exist on a GPU alone: loops over elements."""
    if not op.name.startswith("jiterator"):
        return op

    def loop(*tensors: Any, **scalars: Any) -> Any:
        return [sum(tensors)] * op.op.num_outputs

    return loop


def differentiable(tensors: list[Any]) -> list[Any]:
    return [tensor for tensor in tensors if tensor.requires_grad]


def gradients(sample: Any, outputs: Any) -> list[Any]:
    import torch

    inputs = differentiable(tensors_of(sample))
    results = differentiable(tensors_of(outputs))
    if not inputs or not results:
        return []
    seeds = [result.detach() for result in results]
    return list(torch.autograd.grad(results, inputs, seeds, allow_unused=True))


def check_sample(op: Any, sample: Any, backward: bool) -> bool:
    """False where the CPU itself does not take the sample."""
    virtual = on_device(sample, "cuda")
    if op.name in SECOND_ON_HOST:
        virtual = (virtual[0], sample[1], sample[2])
    # A fresh one: leaves of some samples of torch's have lost their way to a gradient.
    reference = on_device(sample, "meta" if op.name in ONLY_CUDA else "cpu")
    try:
        expected = run(reference_of(op), reference)
        wanted = gradients(reference, expected) if backward else []
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return False
    outputs = run(op, virtual)
    inputs = tensors_of(sample)
    compare(
        tensors_of(expected),
        tensors_of(outputs),
        lambda tensor: promises_strides(op, inputs, tensor),
        "forward",
    )
    if backward:
        compare(wanted, gradients(virtual, outputs), lambda tensor: False, "backward")
    return True


def spread(samples: Iterator[Any], count: int) -> list[Any]:
    """The first samples, and some from further on: they go from plain to strange."""
    found = list(itertools.islice(samples, 40))
    if len(found) <= count:
        return found
    return [found[place * (len(found) - 1) // (count - 1)] for place in range(count)]


def check_entry(op: Any, count: int) -> Result:
    import torch

    name = entry_name(op)
    dtype = pick_dtype(op)
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
    torch.manual_seed(0)
    samples = spread(op.sample_inputs("cpu", dtype, requires_grad=backward), max(count, 2))
    checked = 0
    for sample in samples:
        if sample.kwargs.get("driver", "gels") != "gels":
            continue  # a way of solving that CUDA does not know
        whole = (sample.input, sample.args, sample.kwargs)
        try:
            checked += check_sample(op, whole, backward)
        except Mismatch as error:
            return Result(name, WRONG, str(error), checked)
        except Exception as error:
            return Result(name, *judged(error), checked)
    if checked == 0:
        return Result(name, WRONG, "the CPU takes none of the samples, so nothing was compared")
    return Result(name, RIGHT, "", checked)


def judged(error: Exception) -> tuple[str, str]:
    """A refusal is one sentence that the virtual GPU means; anything else is a failure."""
    text = str(error).strip().split("\n")[0]
    internal = any(word.lower() in str(error).lower() for word in INTERNAL)
    refused = "virtual GPU" in text and not internal
    return (REFUSED if refused else FAILED), f"{type(error).__name__}: {text[:300]}"


def run_entries(names: list[str], samples: int, out: Path) -> None:
    import peakline

    warnings.simplefilter("ignore")
    with out.open("a") as lines, peakline.virtual_gpu("h200"):
        by_name = {entry_name(op): op for op in entries()}  # some ask here whether there is a GPU
        for name in names:
            lines.write(json.dumps({"started": name}) + "\n")
            lines.flush()
            try:
                result = check_entry(by_name[name], samples)
            except Exception as error:
                result = Result(name, FAILED, f"{type(error).__name__}: {str(error)[:300]}")
            lines.write(json.dumps(asdict(result)) + "\n")
            lines.flush()


# --- All entries, from a process that starts others. ---


def read_lines(out: Path) -> tuple[dict[str, Result], str | None]:
    """What came back, and the entry that was begun and not ended."""
    results: dict[str, Result] = {}
    started: str | None = None
    for line in out.read_text().splitlines() if out.exists() else []:
        record = json.loads(line)
        if "started" in record:
            started = record["started"]
        else:
            results[record["name"]] = Result(**record)
    return results, started if started not in results else None


def run_chunk(names: list[str], samples: int) -> dict[str, Result]:
    """Starts a process again after the entry that ended one."""
    results: dict[str, Result] = {}
    left = list(names)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "results.jsonl"
            command = [sys.executable, __file__, "--samples", str(samples), "--child", str(out)]
            ended = start(command, left)
            found, started = read_lines(out)
        results |= found
        if started is not None:
            results[started] = Result(started, FAILED, ended)
        elif not found:
            return results | {name: Result(name, FAILED, ended) for name in left}
        left = [name for name in left if name not in results]
    return results


def start(command: list[str], names: list[str]) -> str:
    limit = SECONDS_PER_ENTRY * len(names)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            input="\n".join(names),
            text=True,
            timeout=limit,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {limit} s"
    last = done.stderr.strip().splitlines()[-1:] or [""]
    return f"the process ended with {done.returncode}: {last[0][:200]}"


def summary(results: list[Result]) -> str:
    counts = dict.fromkeys((RIGHT, REFUSED, WRONG, FAILED), 0)
    for result in results:
        counts[result.status] += 1
    share = 100 * counts[RIGHT] / max(1, len(results))
    parts = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(results)} entries: {parts} ({share:.1f}% right)"


def markdown(results: list[Result]) -> str:
    rows = [f"{summary(results)}\n", "| Entry | | Why |", "|---|---|---|"]
    for result in results:
        if result.status != RIGHT:
            reason = result.reason.replace("|", "\\|")
            rows.append(f"| `{result.name}` | {result.status} | {reason} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--only", default="*", help="names of entries, with * and ?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        run_entries(sys.stdin.read().split("\n"), arguments.samples, arguments.child)
        return 0
    names = [name for op in entries() if fnmatch.fnmatch(name := entry_name(op), arguments.only)]
    chunks = [names[i : i + ENTRIES_PER_PROCESS] for i in range(0, len(names), ENTRIES_PER_PROCESS)]
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for part in pool.map(lambda chunk: run_chunk(chunk, arguments.samples), chunks):
            results |= part
    ordered = [results[name] for name in names]
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in ordered], indent=1))
    if arguments.markdown:
        arguments.markdown.write_text(markdown(ordered))
    print(summary(ordered))
    bad = [result for result in ordered if result.status in (WRONG, FAILED)]
    for result in bad:
        print(f"{result.status:8} {result.name}: {result.reason}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
