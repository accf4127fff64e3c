"""How fast an estimate is, beside upstream's way: FakeTensorMode and MemTracker on device cpu.

python benchmarks/estimate_speed.py                          models of this repository
python benchmarks/estimate_speed.py --workloads FILE [NAME…] steps of a workloads file
python benchmarks/estimate_speed.py --only ops|layers|large  one part

Every row is measured in processes of its own, with nothing cached; imports are left out, full
recording and the simulated allocator are on. --cpu-time counts the process's CPU seconds, for a
machine that others use, too.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from workload_file import chosen, load

HERE = Path(__file__).resolve().parent
STEPS = 8  # steady steps are taken from the last of them
UPSTREAM_STEPS = 3

clock = time.perf_counter
Child = Callable[[argparse.Namespace], dict[str, Any]]


class Subject:
    """A model, its optimizer and one training step."""

    def __init__(self, model: Any, optimizer: Any, inputs: list[Any], loss: Any) -> None:
        self.model, self.optimizer, self.inputs, self.loss = model, optimizer, inputs, loss

    def step(self) -> None:
        self.loss(self.model, *self.inputs).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def llama(device: str, layers: int = 16, size: str = "1b", length: int = 2048) -> Subject:
    import dataclasses

    import torch
    import torch.nn.functional as F

    example = load(str(HERE.parent / "examples" / "llama.py"))
    shape = dataclasses.replace(example.SHAPES[size], layers=layers)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = example.Llama(shape, length, checkpointed=False)
            tokens = torch.randint(0, shape.vocabulary, (1, length))
    finally:
        torch.set_default_dtype(before)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss(model: Any, tokens: Any) -> Any:
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return Subject(model, optimizer, [tokens], loss)


def convolutions(device: str) -> Subject:
    import torch
    from torch import nn

    def block(inside: int, outside: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU()
        )

    widths = [3, *[64] * 6, *[128] * 8, *[256] * 12, *[512] * 6]
    with torch.device(device):
        model = nn.Sequential(
            *(block(a, b) for a, b in itertools.pairwise(widths)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, 1000),
        )
        images, classes = torch.rand(16, 3, 64, 64), torch.randint(0, 1000, (16,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    return Subject(model, optimizer, [images, classes], lambda m, x, y: criterion(m(x), y))


def encoder(device: str) -> Subject:
    import torch
    from torch import nn

    with torch.device(device):
        layers = (nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True) for _ in range(12))
        model = nn.Sequential(*layers)
        x = torch.rand(16, 256, 768)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    return Subject(model, optimizer, [x], lambda model, x: model(x).square().mean())


OWN: dict[str, Callable[[str], Subject]] = {
    "llama-1b": llama,
    "convolutions": convolutions,
    "encoder": encoder,
}


def build(args: argparse.Namespace, device: str) -> Any:
    if not args.workloads:
        return OWN[args.name](device)
    return load(args.workloads).W[args.name](device)


def tensors_of(subject: Any) -> list[Any]:
    inputs = subject.inputs
    return list(inputs.values()) if isinstance(inputs, dict) else [*inputs]


def preload(args: argparse.Namespace) -> None:
    """Imports are no part of what is measured."""
    import torch
    import torch._subclasses.fake_tensor
    import torch.distributed._tools.mem_tracker
    import torch.distributed.fsdp  # noqa: F401

    if args.workloads:
        load(args.workloads)
        import transformers

        for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "BertForMaskedLM"):
            getattr(transformers, name)
        for name in ("ViTForImageClassification", "ConvNextForImageClassification"):
            getattr(transformers, name)
    import peakline  # noqa: F401


def timed(subject: Any, steps: int, between: Callable[[], Any] = lambda: None) -> list[float]:
    times = []
    for _ in range(steps):
        began = clock()
        subject.step()
        times.append(clock() - began)
        between()
    return times


def child_virtual(args: argparse.Namespace) -> dict[str, Any]:
    import peakline

    preload(args)
    began = clock()
    with peakline.virtual_gpu("h200") as run:
        subject = build(args, "cuda")
        built = clock() - began
        times = timed(subject, STEPS)
        counters = peakline._C.vgpu.counters()
        peak = run.peak("cuda:0").bytes
    return {"build": built, "steps": times, "peak": peak, "counters": counters}


def child_upstream(args: argparse.Namespace) -> dict[str, Any]:
    preload(args)
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    began = clock()
    with FakeTensorMode():
        subject = build(args, "cpu")
        tracker = MemTracker()
        optimizer = subject.optimizer if hasattr(subject, "optimizer") else subject.opt
        inputs = subject.inputs
        given = [inputs] if hasattr(inputs, "shape") else tensors_of(subject)
        tracker.track_external(subject.model, optimizer, *given)
        built = clock() - began
        with tracker:
            times = timed(subject, UPSTREAM_STEPS, tracker.reset_mod_stats)
    return {"build": built, "steps": times}


def child_ops(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    import peakline

    with peakline.virtual_gpu("h200"):
        x = torch.rand(64, 64, device="cuda")
        loops = 20000
        hit = _per_op(lambda i: torch.add(x, x), range(loops))
        sizes = range(100, 2100)
        made = [torch.empty(size, device="cuda") for size in sizes]
        miss = _per_op(lambda i: torch.add(made[i], made[i]), range(len(made)))
    y = torch.rand(64, 64, device="meta")
    meta = _per_op(lambda i: torch.add(y, y), range(loops))
    z = torch.rand(8)
    cpu = _per_op(lambda i: torch.add(z, z), range(loops))
    return {"hit": hit, "miss": miss, "meta": meta, "cpu": cpu}


def _per_op(op: Callable[[int], Any], numbers: Iterable[int]) -> float:
    """Seconds, the best of three runs over different parts."""
    every = list(numbers)
    parts = [every[k::3] for k in range(3)]
    best = math.inf
    for part in parts:
        began = clock()
        for i in part:
            op(i)
        best = min(best, (clock() - began) / len(part))
    return best


def child_layers(args: argparse.Namespace) -> dict[str, Any]:
    import peakline

    preload(args)
    began = clock()
    with peakline.virtual_gpu("h200", memory="4TiB"):
        subject = llama("cuda", layers=int(args.name))
        built = clock() - began
        times = timed(subject, STEPS)
    return {"build": built, "steps": times}


def child_large(args: argparse.Namespace) -> dict[str, Any]:
    import peakline

    preload(args)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = clock()
    with peakline.virtual_gpu("h200", memory="64TiB") as run:
        subject = llama("cuda", layers=126, size="405b", length=4096)
        built = clock() - began
        times = timed(subject, 1)
        peak = run.peak("cuda:0").bytes
    seconds = clock() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "build": built,
        "steps": times,
        "seconds": seconds,
        "peak": peak,
        "host_before": before * 1024,
        "host": after * 1024,
    }


CHILDREN: dict[str, Child] = {
    "virtual": child_virtual,
    "upstream": child_upstream,
    "ops": child_ops,
    "layers": child_layers,
    "large": child_large,
}


def measure(kind: str, name: str = "", workloads: str | None = None) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", kind, "--name", name]
    if clock is time.process_time:
        command.append("--cpu-time")
    if workloads:
        command += ["--workloads", workloads]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        error = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"error": error[:150]}
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return result


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def compare(names: list[str], workloads: str | None) -> None:
    print(
        "\n| Model | Upstream: build + 3 steps (s) | Virtual (s) | Ratio | Upstream: step (s) |"
        " Virtual (s) | Ratio |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    totals, steady = [], []
    for name in names:
        ours = measure("virtual", name, workloads)
        theirs = measure("upstream", name, workloads)
        if "error" in ours or "error" in theirs:
            print(
                f"| {name} | {theirs.get('error', 'runs')} | {ours.get('error', 'runs')} | | | | |"
            )
            continue
        total = [row["build"] + sum(row["steps"][:3]) for row in (theirs, ours)]
        step = [min(theirs["steps"][1:]), min(ours["steps"][3:])]
        totals.append(total[0] / total[1])
        steady.append(step[0] / step[1])
        print(
            f"| {name} | {total[0]:.2f} | {total[1]:.3f} | {totals[-1]:.0f}x | {step[0]:.2f} |"
            f" {step[1]:.4f} | {steady[-1]:.0f}x |",
            flush=True,
        )
    if totals:
        print(
            f"| geometric mean | | | {geometric_mean(totals):.0f}x | | |"
            f" {geometric_mean(steady):.0f}x |"
        )


def show_ops() -> None:
    found = measure("ops")
    if "error" in found:
        print(f"\nops: {found['error']}")
        return
    print("\n| torch.add, one op | µs |\n|---|---:|")
    labels = {
        "hit": "virtual, shape seen before",
        "miss": "virtual, new shape",
        "meta": "meta tensors",
        "cpu": "CPU, 8 elements",
    }
    for name, label in labels.items():
        print(f"| {label} | {found[name] * 1e6:.2f} |")


def show_layers() -> None:
    print("\n| Layers | Build (ms) | First step (ms) | Steady step (ms) | per layer (ms) |")
    print("|---:|---:|---:|---:|---:|")
    for layers in (8, 16, 32, 64, 126):
        found = measure("layers", str(layers))
        if "error" in found:
            print(f"| {layers} | {found['error']} | | | |")
            continue
        steady = min(found["steps"][3:])
        print(
            f"| {layers} | {found['build'] * 1e3:.0f} | {found['steps'][0] * 1e3:.0f} |"
            f" {steady * 1e3:.1f} | {steady * 1e3 / layers:.3f} |",
            flush=True,
        )


def show_large() -> None:
    found = measure("large")
    if "error" in found:
        print(f"\n405B: {found['error']}")
        return
    print(
        f"\nLlama-3.1-405B shape, built under the device, one step of 1 x 4096 tokens: "
        f"{found['seconds']:.2f} s (build {found['build']:.2f} s, step {found['steps'][0]:.2f} s), "
        f"peak {found['peak'] / 2**40:.2f} TiB; the process held at most "
        f"{found['host'] / 2**30:.2f} GiB ({found['host_before'] / 2**30:.2f} GiB before)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--workloads")
    parser.add_argument("--only", choices=["compare", "ops", "layers", "large"])
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    if args.cpu_time:
        global clock
        clock = time.process_time
    if args.child:
        print("RESULT " + json.dumps(CHILDREN[args.child](args)), flush=True)
        return
    import torch

    kind = "CPU seconds" if args.cpu_time else "seconds"
    print(f"{datetime.date.today()}, torch {torch.__version__}, {platform.machine()}, {kind}")
    if args.only in (None, "compare"):
        known = load(args.workloads).W if args.workloads else OWN
        compare(chosen(parser, args.names, known), args.workloads)
    parts = {"ops": show_ops, "layers": show_layers, "large": show_large}
    for name, part in parts.items():
        if args.only in (None, name):
            part()


if __name__ == "__main__":
    main()
