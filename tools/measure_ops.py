# mypy: disable-error-code="misc,call-arg,no-untyped-call"
"""Measures on a GPU what ops and training steps allocate, to compare with peakline's predictions.

    python tools/measure_ops.py OUT [--only info ops choices models kernels] [--set NAME]

Writes OUT/info.json, ops.jsonl, choices.jsonl, models.jsonl, trace.NAME.jsonl.gz and kernels.txt,
and all of it again in OUT/all.tar. Every model runs in a process of its own. With --virtual it runs
on a virtual GPU and writes predictions: peaks alone, no allocator history.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.utils._python_dispatch

sys.path.insert(0, str(Path(__file__).parent))
from accuracy import (
    fresh_cases,
    fresh_models,
    fsdp_models,
    later_program_models,
    later_zoo_models,
    models,
    op_cases,
    program_models,
    unseen_cases,
    unseen_models,
    zoo_models,
)
from accuracy.op_cases import Case

# Cases and models. No rule was made with those of "fresh" and "unseen" when they were predicted.
SETS: dict[str, tuple[Any, Any]] = {
    "explored": (op_cases, models),
    "fresh": (fresh_cases, fresh_models),
    "fsdp": (None, fsdp_models),
    "unseen": (unseen_cases, unseen_models),
    "programs": (None, program_models),
    "later_programs": (None, later_program_models),
    "zoo": (None, zoo_models),
    "later_zoo": (None, later_zoo_models),
}

KINDS = ("alloc", "free_requested", "segment_alloc", "segment_free")
MEMORY = torch.cuda.memory


def history(on: bool, entries: int = 20_000) -> None:
    MEMORY._record_memory_history(enabled=None)
    if on:
        MEMORY._record_memory_history(enabled="all", context=None, max_entries=entries)


def events() -> list[dict[str, Any]]:
    traces = MEMORY._snapshot()["device_traces"]
    return [e for e in traces[0] if e["action"] in KINDS] if traces else []


def asked(what: str) -> int:
    """Bytes as the program asked for them, before the allocator rounds."""
    return int(torch.cuda.memory_stats().get(f"requested_bytes.all.{what}", 0))


class Probe:
    """The allocator's events and peak rise while a call runs."""

    def __init__(self, peaks_only: bool) -> None:
        self.peaks_only = peaks_only

    def __call__(self, call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        asked_before = asked("current")
        torch.cuda.reset_peak_memory_stats()
        if not self.peaks_only:
            history(True)
        result = call()
        torch.cuda.synchronize()
        seen: dict[str, Any] = {"rise": torch.cuda.max_memory_allocated() - before}
        seen["requested"] = asked("peak") - asked_before
        if not self.peaks_only:
            seen["events"] = [
                ("+" if e["action"] == "alloc" else "-") + str(e["size"])
                for e in events()
                if e["action"] in ("alloc", "free_requested")
            ]
        return result, seen


def measure(case: Case, probe: Probe, rounds: tuple[str, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": case.name, "family": case.family, "args": plain(case.args)}
    gc.collect()
    torch.cuda.empty_cache()
    if hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
        torch._C._cuda_clearCublasWorkspaces()
    try:
        call = case.make()
        for name in rounds:
            result, row[f"{name}_forward"] = probe(call)
            if case.grad:
                result = result[0] if isinstance(result, tuple) else result
                gradient = torch.ones_like(result)
                _, row[f"{name}_backward"] = probe(lambda r=result, g=gradient: r.backward(g))
                row[f"{name}_strides"] = list(result.stride())
            del result
    except Exception as error:  # a case that this GPU or torch cannot do is a result too
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    return row


def plain(args: dict[str, Any]) -> dict[str, Any]:
    return {
        k: str(v).removeprefix("torch.") if isinstance(v, torch.dtype) else v
        for k, v in args.items()
    }


def measure_ops(args: argparse.Namespace) -> None:
    probe = Probe(peaks_only=bool(args.virtual))
    begin = time.monotonic()
    skipped = 0
    with (args.out / "ops.jsonl").open("w") as file:
        cases = SETS[args.set][0].all_cases()
        random.Random(0).shuffle(cases)  # when time runs out, every family is there in part
        for case in cases:
            if time.monotonic() - begin > args.seconds:
                skipped += 1
                continue
            twice = args.set != "explored" or case.family in ("linear", "optimizer")
            rounds = ("first", "second") if twice else ("first",)
            file.write(json.dumps(measure(case, probe, rounds)) + "\n")
    print(f"ops: {time.monotonic() - begin:.1f} s, {skipped} skipped", flush=True)


def choice_grid() -> Iterator[dict[str, Any]]:
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    for dtype, d, (t, s), (h, kv), mask, dropout, causal, grad in itertools.product(
        dtypes, (16, 36, 64, 80, 100, 128, 192, 256, 320),
        ((128, 128), (100, 60), (1, 64), (77, 1)),
        ((8, 8), (8, 2)),
        (None, "bool", "float", "head"), (0.0, 0.1), (False, True), (True, False),
    ):  # fmt: skip
        if (mask and causal) or (dropout and (d not in (64, 256) or mask)):
            continue
        yield {
            "dtype": dtype, "d": d, "t": t, "s": s, "h": h, "kv": kv, "mask": mask,
            "dropout": dropout, "causal": causal, "grad": grad,
        }  # fmt: skip


def measure_choices(out: Path) -> None:
    begin = time.monotonic()
    with (out / "choices.jsonl").open("w") as file:
        for p in choice_grid():
            q, k, v, m = op_cases.sdpa_inputs(
                p["dtype"], 2, p["h"], p["kv"], p["t"], p["s"], p["d"], p["mask"]
            )
            if not p["grad"]:
                q, k, v = q.detach(), k.detach(), v.detach()
            try:
                p["choice"] = int(
                    torch._fused_sdp_choice(
                        q, k, v, m, p["dropout"], p["causal"], enable_gqa=p["h"] != p["kv"]
                    )
                )
            except Exception as error:
                p["choice"] = f"{type(error).__name__}: {error}"[:100]
            file.write(json.dumps(plain(p)) + "\n")
    print(f"choices: {time.monotonic() - begin:.1f} s", flush=True)


class OpLog(torch.utils._python_dispatch.TorchDispatchMode):
    """Which operator was running when: its name, and the count of allocations around it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = allocations()
        result = func(*args, **(kwargs or {}))
        self.rows.append((str(func), before, allocations()))
        return result


def allocations() -> int:
    return int(
        torch._C._cuda_memoryStats(torch.cuda.current_device())["allocation"]["all"]["allocated"]
    )


def statistics() -> dict[str, int]:
    stats = torch.cuda.memory_stats()
    keys = {
        "allocated": "allocated_bytes",
        "active": "active_bytes",
        "requested": "requested_bytes",
        "reserved": "reserved_bytes",
    }
    row = {name: int(stats.get(f"{key}.all.peak", 0)) for name, key in keys.items()}
    return row | {
        "segments": int(stats.get("segment.all.peak", 0)),
        "retries": int(stats.get("num_alloc_retries", 0)),
    }


def workloads_of(file: str | None) -> dict[str, Callable[[str], Callable[[], None]]]:
    if not file:
        return {}
    spec = importlib.util.spec_from_file_location("workloads", file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)

    def bound(build: Callable[[str], Any]) -> Callable[[str], Callable[[], None]]:
        return lambda device: build(device).step

    return {name: bound(build) for name, build in loaded.W.items()}


def measure_model(
    name: str, build: Callable[[str], Callable[[], None]], out: Path, peaks_only: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "torch": torch.__version__}
    gc.collect()
    torch.cuda.empty_cache()
    if hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
        torch._C._cuda_clearCublasWorkspaces()
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    row["before"] = statistics()
    if not peaks_only:
        history(True, 2_000_000)
    try:
        step = build("cuda")
        row["after_build"] = statistics()
        marks = [0 if peaks_only else len(events())]
        for number in (1, 2, 3):
            torch.cuda.reset_peak_memory_stats()
            begin = time.monotonic()
            step()
            torch.cuda.synchronize()
            row[f"step{number}"] = statistics() | {"seconds": time.monotonic() - begin}
            marks.append(0 if peaks_only else len(events()))
        if not peaks_only:
            log = OpLog()
            with log:
                step()
            with gzip.open(out / f"trace.{name}.jsonl.gz", "wt") as file:
                file.write(json.dumps({"marks": marks, "ops": log.rows}) + "\n")
                for e in events():
                    file.write(json.dumps([e["action"], e["addr"], e["size"], e["stream"]]) + "\n")
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:400]
    history(False)
    return row


def builders_of(args: argparse.Namespace) -> dict[str, Callable[[str], Callable[[], None]]]:
    return dict(SETS[args.set][1].MODELS) | workloads_of(args.workloads)


def measure_models(args: argparse.Namespace) -> None:
    begin = time.monotonic()
    rows: dict[str, str] = {}
    names = args.names or list(builders_of(args))
    with ThreadPoolExecutor(args.jobs) as pool:
        for name, row in pool.map(lambda name: (name, in_a_process(args, name)), names):
            rows[name] = row
            (args.out / "models.jsonl").write_text("".join(f"{row}\n" for row in rows.values()))
    print(f"models: {time.monotonic() - begin:.1f} s", flush=True)


def in_a_process(args: argparse.Namespace, name: str) -> str:
    """A model's row. Peaks are a process's own: others at the same time change its times alone."""
    command = [sys.executable, __file__, str(args.out), "--only", "one_model", "--names", name]
    command += ["--workloads", args.workloads] if args.workloads else []
    command += ["--virtual", args.virtual] if args.virtual else []
    command += ["--tensor-first"] if args.tensor_first else []
    command += ["--set", args.set]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    return lines[-1][4:] if lines else json.dumps({"name": name, "error": done.stderr[-400:]})


def measure_one_model(args: argparse.Namespace) -> None:
    builders = builders_of(args)
    build = builders[args.names[0]]
    if args.tensor_first:
        build = after_a_tensor(build)
    row = measure_model(args.names[0], build, args.out, bool(args.virtual))
    print("ROW " + json.dumps(row), flush=True)


def after_a_tensor(
    build: Callable[[str], Callable[[], None]],
) -> Callable[[str], Callable[[], None]]:
    def built(device: str) -> Callable[[], None]:
        first = torch.zeros(1, device=device)
        step = build(device)

        def with_first() -> None:
            step()
            assert first.numel() == 1

        return with_first

    return built


def measure_info(out: Path) -> None:
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    used = {"nothing": total - free}
    x = torch.ones(64, 64, device="cuda")
    x @ x
    torch.cuda.synchronize()
    used["cublas"] = total - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    torch.nn.functional.conv2d(
        torch.ones(1, 4, 8, 8, device="cuda"), torch.ones(4, 4, 3, 3, device="cuda")
    )
    torch.cuda.synchronize()
    used["cudnn"] = total - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    names = [n for n in dir(properties) if not n.startswith("_")]
    row = {n: str(getattr(properties, n)) for n in names}
    row |= {
        "torch": torch.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
        "used": json.dumps(used),
    }
    (out / "info.json").write_text(json.dumps(row, indent=1))


def list_kernels(out: Path) -> None:
    """Every operator, and which of the keys that decide how CUDA runs it have a kernel."""
    keys = (
        "CUDA",
        "CompositeImplicitAutograd",
        "CompositeExplicitAutograd",
        "CompositeExplicitAutogradNonFunctional",
        "Meta",
    )
    with (out / "kernels.txt").open("w") as file:
        for name in sorted(torch._C._dispatch_get_all_op_names()):
            has = [k for k in keys if torch._C._dispatch_has_kernel_for_dispatch_key(name, k)]
            file.write(f"{name} {' '.join(has)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--only", nargs="*", default=["info", "kernels", "choices", "models", "ops"]
    )
    parser.add_argument("--names", nargs="*", default=[], help="only these models")
    parser.add_argument("--workloads", help="a file with further models: a dict W of builders")
    parser.add_argument("--virtual", help="run on a virtual GPU of this name and write predictions")
    parser.add_argument("--jobs", type=int, default=1, help="models at the same time (default 1)")
    parser.add_argument(
        "--tensor-first",
        action="store_true",
        help="make a tensor of 4 bytes before the model: on the H200's machine there is one where "
        "Hugging Face's models are built under torch.device",
    )
    parser.add_argument("--set", choices=SETS, default="explored", help="which cases and models")
    parser.add_argument(
        "--seconds", type=float, default=120, help="stop the single ops after this long"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.virtual:
        # The allocator of the torch that everything here was measured with.
        os.environ.setdefault("PEAKLINE_ALLOCATOR_TORCH", "2.11")
        import peakline

        with peakline.virtual_gpu(args.virtual):
            run(args)
    else:
        run(args)
    if "one_model" not in args.only:
        with tarfile.open(args.out / "all.tar", "w") as tar:
            for path in sorted(args.out.iterdir()):
                if path.name != "all.tar":
                    tar.add(path, path.name)


def run(args: argparse.Namespace) -> None:
    if "one_model" in args.only:
        measure_one_model(args)
    if "info" in args.only:
        measure_info(args.out)
    if "kernels" in args.only:
        list_kernels(args.out)
    if "choices" in args.only:
        measure_choices(args.out)
    if "models" in args.only:
        measure_models(args)
    if "ops" in args.only:
        measure_ops(args)


if __name__ == "__main__":
    main()
