"""Formulas that people use beside peakline's estimate and what a real GPU measured.

python benchmarks/formulas.py WORKLOADS.py TRUTH.jsonl [NAME…]

The formulas are those of the installed packages, called as their commands call them: accelerate's
`estimate-memory` ("Training using Adam") and DeepSpeed's `estimate_zero2_model_states_mem_needs`
and `estimate_zero3_model_states_mem_needs` for one GPU without offload. They know the parameters;
activations, gradients' temporaries and libraries are the user's to add. The files are those of
estimate_accuracy.py; compared is the highest that was allocated in building and three steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from estimate_accuracy import STAGES, estimate, in_child
from workload_file import chosen, load


def sizes_of(path: str, name: str, gpu: str) -> dict[str, Any]:
    """What the formulas ask of a model, which is built on a virtual GPU."""
    import torch
    from accelerate.utils import calculate_maximum_sizes

    import peakline

    with peakline.virtual_gpu(gpu):
        model = load(path).W[name]("cuda").model
        total, (largest, _) = calculate_maximum_sizes(model)
        parameters = {p.data_ptr(): p for p in model.parameters()}.values()
        item = next(iter(parameters)).element_size()
        low = any(p.dtype != torch.float32 for p in parameters)
        return {
            "bytes_fp32": total * 4 // item,
            "dtype": "bfloat16" if low else "float32",
            "parameters": sum(p.numel() for p in parameters),
            "largest_layer": largest // item,
        }


def by_formula(sizes: dict[str, Any]) -> dict[str, int]:
    from accelerate.commands.estimate import estimate_training_usage
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    adam = estimate_training_usage(sizes["bytes_fp32"], sizes["dtype"])
    count, largest = sizes["parameters"], sizes["largest_layer"]
    return {
        "accelerate": max(adam.values()),
        "zero2": estimate_zero2_model_states_mem_needs(count, cpu_offload=False)[1],
        "zero3": estimate_zero3_model_states_mem_needs(count, largest, cpu_offload=False)[1],
    }


def formulas_in_child(args: argparse.Namespace, name: str) -> dict[str, int]:
    command = [sys.executable, __file__, args.workloads, args.truth, "--formulas", name]
    done = subprocess.run([*command, "--gpu", args.gpu], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        sys.exit(f"{name}: {last}")
    found: dict[str, int] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


def cell(size: int, real: int) -> str:
    return f"{size / 2**20:,.0f} ({100 * (size / real - 1):+.1f}%)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads")
    parser.add_argument("truth")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--formulas", help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child or args.formulas:
        if args.child:
            found: Any = estimate(args.workloads, args.child, args.gpu)
        else:
            found = by_formula(sizes_of(args.workloads, args.formulas, args.gpu))
        print("RESULT " + json.dumps(found), flush=True)
        return
    with open(args.truth) as lines:
        truth = {entry["name"]: entry for entry in map(json.loads, lines)}
    print(
        "| Workload | Real (MiB) | peakline | accelerate, Adam | DeepSpeed ZeRO-2 |"
        " DeepSpeed ZeRO-3 |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for name in chosen(parser, args.names, truth):
        real = max(truth[name][stage]["allocated"] for stage in STAGES)
        found = in_child(args, name)
        if "error" in found:
            sys.exit(f"{name}: {found['error']}")
        sizes = [max(found[stage]["allocated"] for stage in STAGES)]
        sizes += formulas_in_child(args, name).values()
        print(f"| {name} | {real / 2**20:,.0f} | {' | '.join(cell(s, real) for s in sizes)} |")


if __name__ == "__main__":
    main()
