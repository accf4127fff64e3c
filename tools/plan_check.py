"""Whether planned training does on a GPU what `peakline plan` said that it would.

    python tools/plan_check.py predict -o predictions.json                  # no GPU; keep it
    python tools/plan_check.py measure predictions.json -o measured.jsonl [NAME ...]
    python tools/plan_check.py compare predictions.json measured.jsonl

`predict` plans the scripts of tools/accuracy/plan_training.py under three budgets each, which leave
0.6, 0.35 and 0.1 of what recomputation can save. Llama-3-8B, whole, does not fit without
recomputation: it has one budget, and is compared with recomputing all layers.
`measure` trains each eight steps in a process of its own, planned ones with the allocator limited
to the budget: peaks, the median step from the third on, and losses with deterministic kernels.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
SCRIPT = Path(__file__).parent / "accuracy" / "plan_training.py"
SHARES = (0.6, 0.35, 0.1)
LARGE = {"llama-8b": 128 * 2**30}  # bytes; trains only when some is recomputed
WHOLE = {*LARGE, "tiny"}  # beside recomputing all layers
LAYERS = {"gpt2": "transformer.h.{0..11}", "llama-1b": "model.layers.{0..15}"}
LAYERS |= {"vit-large": "vit.layers.{0..23}", "llama-8b": "model.layers.{0..31}"}
LAYERS |= {"tiny": "transformer.h.{0..1}"}
UNLIMITED = 2**47
LEVERS = "activations"  # alone, so that planned and plain steps differ in recomputation alone
_MIB = 2**20


def peakline_answer(module: str, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"peakline.{module}", str(SCRIPT), "--json", "-", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"failed with {done.returncode}: {' '.join(command)}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def planned(name: str, budget: int) -> dict[str, Any]:
    words = ["--memory", str(budget), "--levers", LEVERS, "--jobs", "1", "--", "--model", name]
    return peakline_answer("_plan_script", *words)


def numbers(answer: dict[str, Any]) -> dict[str, Any]:
    keys = ("peak_allocated", "peak_reserved", "step_ms", "plan", "changes")
    return {key: answer[key] for key in keys if key in answer}


def whole_layers(name: str) -> dict[str, Any]:
    """Every layer recomputed as a whole."""
    entry = {"modules": [LAYERS[name]], "policy": "recompute"}
    plan = {"schema_version": 1, "activations": [entry]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        file.write_text(json.dumps(plan))
        words = ["--memory", str(UNLIMITED), "--plan", str(file), "--", "--model", name]
        return {**numbers(peakline_answer("_estimate_script", *words)), "plan": plan}


def predict(args: argparse.Namespace) -> int:
    import torch

    os.environ.setdefault("PEAKLINE_ALLOCATOR_TORCH", "2.11")
    found: dict[str, Any] = {"torch": torch.__version__, "gpu": "h200", "runs": {}}
    for name in args.names or LAYERS.keys() - {"tiny"}:
        found["runs"].update(dict(predictions(name)))
    Path(args.output).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def predictions(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    searched = planned(name, UNLIMITED)
    plain = next(one for one in searched["plans"] if one["changes"] in ([], ["as it is"]))
    floor = searched["floor"]
    budgets = {
        f"{share}": floor + round(share * (plain["peak_reserved"] - floor)) // _MIB * _MIB
        for share in SHARES
    }
    if name in LARGE:
        budgets = {f"{LARGE[name] / 2**30:.0f}GiB": LARGE[name]}
    if name in WHOLE:
        yield f"{name} whole", {"model": name, **whole_layers(name)}
    yield f"{name} plain", {"model": name, "measured": name not in LARGE, **numbers(plain)}
    for label, budget in budgets.items():
        answer = planned(name, budget)
        if answer["chosen"] is None:
            sys.exit(f"{name}: nothing fits {budget} bytes")
        chosen = answer["plans"][answer["chosen"]]
        row = {"model": name, "budget": budget, **numbers(chosen)}
        print(f"{name} {label}: {budget / 2**30:.2f} GiB, {chosen['changes']}", file=sys.stderr)
        yield f"{name} {label}", row


def measure(args: argparse.Namespace) -> int:
    runs = json.loads(Path(args.predictions).read_text())["runs"]
    chosen = [name for name in runs if runs[name].get("measured", True)]
    unknown = [name for name in args.names if not any(key.startswith(name) for key in chosen)]
    if unknown:
        sys.exit(f"there is no run '{unknown[0]}'; there are: {', '.join(chosen)}")
    if args.names:
        chosen = [name for name in chosen if name.startswith(tuple(args.names))]
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic; usual on an H200
    # What is imported before the fork is imported once; nothing here makes a CUDA context.
    import torch  # noqa: F401
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama
    import transformers.models.vit.modeling_vit  # noqa: F401

    import peakline  # noqa: F401

    failed, end = 0, time.monotonic() + args.within
    context = multiprocessing.get_context("fork")
    for name in chosen:
        begin = time.monotonic()
        if begin > end:
            print(f"{name}: not begun, {args.within:.0f} s are over", flush=True)
            failed += 1
            continue
        run = context.Process(target=_run, args=(name, runs[name], args))
        run.start()
        run.join(args.limit)
        if run.is_alive():
            run.kill()
            run.join()
        failed += bool(run.exitcode)
        told = "" if not run.exitcode else f", exit code {run.exitcode}"
        print(f"{name}: {time.monotonic() - begin:.1f} s{told}", flush=True)
    return 1 if failed else 0


def _run(name: str, run: dict[str, Any], args: argparse.Namespace) -> None:
    """In a process of its own. What is known is written before losses are looked at, which may
    fail where a kernel has no deterministic form."""
    row = {"name": name, **_train(run, args)}
    if args.losses and run["model"] not in LARGE:
        try:
            row["losses"] = _losses(run, args)
        except RuntimeError as error:
            row["why_no_losses"] = str(error).splitlines()[0]
    with Path(args.output).open("a") as out:
        print(json.dumps(row), file=out)


def _train(run: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    import torch

    from accuracy import plan_training

    gpu = args.device == "cuda"
    if gpu and "budget" in run:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((run["budget"] + 0.5) / total)
    times: list[float] = []
    losses: list[float] = []
    peaks: list[int] = []

    def after_step(_: int, loss: float) -> None:  # reading the loss has waited for the step
        times.append(time.perf_counter())
        losses.append(loss)
        if gpu:
            peaks.append(torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()

    case = plan_training.CASES[run["model"]]
    row: dict[str, Any] = {"torch": torch.__version__}
    try:
        plan_training.train(case, args.steps, after_step, _planned(run), args.device)
    except torch.OutOfMemoryError as error:
        row["out_of_memory"] = str(error).splitlines()[0]
    steps = [1e3 * (b - a) for a, b in itertools.pairwise(times[1:])]
    if steps:
        row |= {"step_ms": statistics.median(steps), "steps_ms": steps, "seen": losses}
    if gpu:
        stats = torch.cuda.memory_stats()
        row |= {"peak_allocated": max(peaks, default=0), "peaks": peaks}
        row["peak_reserved"] = stats["reserved_bytes.all.peak"]
        row["reserved"] = torch.cuda.memory_reserved()
        row["retries"] = stats["num_alloc_retries"]
    return row


def _losses(run: dict[str, Any], args: argparse.Namespace) -> list[float]:
    """Of a few steps from the beginning, with deterministic kernels."""
    import torch
    import torch.utils.deterministic as deterministic

    from accuracy import plan_training

    gc.collect()
    if args.device == "cuda":
        torch.cuda.empty_cache()
    torch.use_deterministic_algorithms(True)
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    losses: list[float] = []
    case = plan_training.CASES[run["model"]]
    plan_training.train(case, 4, lambda _, loss: losses.append(loss), _planned(run), args.device)
    return losses


def _planned(run: dict[str, Any]) -> Callable[[Any], Any]:
    import peakline

    return lambda model: peakline.checkpoint(model, run["plan"])


def compare(args: argparse.Namespace) -> int:
    runs = json.loads(Path(args.predictions).read_text())["runs"]
    rows = map(json.loads, Path(args.measured).read_text().splitlines())
    seen = {row["name"]: row for row in rows}
    head = "| Run | Budget GiB | Allocated | off | Reserved | off | Retries | Step ms, predicted |"
    print(f"{head} Overhead, predicted | Losses |")
    print("|---|" + "---:|" * 9)
    for name, run in runs.items():
        if name in seen:
            print("| " + " | ".join(_cells(name, run, seen[name], runs, seen)) + " |")
    return 0


def _cells(
    name: str, run: dict[str, Any], row: dict[str, Any], runs: dict[str, Any], seen: dict[str, Any]
) -> Iterator[str]:
    yield name
    yield f"{run['budget'] / 2**30:.2f}" if "budget" in run else "-"
    for key in ("peak_allocated", "peak_reserved"):
        if row.get(key):
            yield f"{row[key] / 2**30:.2f} GiB"
            yield f"{run[key] / row[key] - 1:+.2%}"
        else:
            yield from ("-", "-")
    yield row.get("out_of_memory") or str(row.get("retries", "-"))
    if "step_ms" not in row:
        yield from ("-", "-", "-")
        return
    yield f"{row['step_ms']:.1f}, {run['step_ms']:.1f} ({run['step_ms'] / row['step_ms'] - 1:+.1%})"
    yield _overhead(run, row, runs, seen)
    yield _same_losses(row, seen.get(f"{run['model']} plain"))


def _overhead(
    run: dict[str, Any], row: dict[str, Any], runs: dict[str, Any], seen: dict[str, Any]
) -> str:
    """Of the plain run; where that does not fit, of the one that recomputes all layers."""
    base = next(
        (f"{run['model']} {kind}" for kind in ("plain", "whole") if _has(run, kind, seen)), ""
    )
    if not base or not run.get("plan") or runs[base] is run:
        return "-"
    real = row["step_ms"] / seen[base]["step_ms"] - 1
    said = run["step_ms"] / runs[base]["step_ms"] - 1
    off = f"{said / real - 1:+.0%}" if real else "-"
    return f"{real:+.1%}, {said:+.1%} ({off})"


def _has(run: dict[str, Any], kind: str, seen: dict[str, Any]) -> bool:
    return "step_ms" in seen.get(f"{run['model']} {kind}", {})


def _same_losses(row: dict[str, Any], plain: dict[str, Any] | None) -> str:
    if "losses" not in row:
        return str(row.get("why_no_losses", "-"))
    if plain is None or "losses" not in plain or plain is row:
        return "-"
    pairs = list(zip(row["losses"], plain["losses"], strict=True))
    if all(a == b for a, b in pairs):
        return "equal"
    return f"differ by {max(math.fabs(a - b) for a, b in pairs):.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="action", required=True)
    one = commands.add_parser("predict")
    one.add_argument("names", nargs="*", metavar="NAME", help=", ".join(LAYERS))
    one.add_argument("-o", "--output", required=True)
    two = commands.add_parser("measure")
    two.add_argument("predictions")
    two.add_argument("names", nargs="*", metavar="NAME", help="runs whose names begin so")
    two.add_argument("-o", "--output", required=True)
    two.add_argument("--steps", type=int, default=8)
    two.add_argument("--limit", type=float, default=60.0, help="seconds of one run, at most")
    two.add_argument("--within", type=float, default=600.0, help="seconds; no run begins later")
    two.add_argument("--device", default="cuda")
    two.add_argument("--no-losses", dest="losses", action="store_false")
    three = commands.add_parser("compare")
    three.add_argument("predictions")
    three.add_argument("measured")
    args = parser.parse_args()
    for name in args.names if args.action == "predict" else ():
        if name not in LAYERS:
            parser.error(f"there is no model '{name}'; there are: {', '.join(LAYERS)}")
    try:
        return {"predict": predict, "measure": measure, "compare": compare}[args.action](args)
    except (OSError, ValueError) as error:  # files that cannot be read, or are no JSON
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
