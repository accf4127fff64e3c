"""Recomputation at the same peak, beside others: `python benchmarks/plan_overhead.py [--compiled]`.

For GPT-2, Llama-1B and ViT-large shapes, the others' plan is applied and estimated on a virtual
H200; then what its peak allows is searched as `peakline plan` does, with bytes that are allocated
in place of those reserved. Both are estimates by the same clock, of the same program; nothing here
was measured on a GPU.

The others: upstream's `sac_milp` (its problem, solved to the end by HiGHS, and its choice of ops
for each module), and with --compiled `activation_memory_budget` of torch.compile, which is then one
of our levers, too: --alone leaves it out.

`sac_milp` is applied by torch's own contexts. Ours run less Python for each op, which counts where
the host is the busier one: --same-contexts applies both by ours, so that only choices differ.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import peakline
from peakline._plan import search
from peakline._plan.document import Plan
from peakline._plan.in_process import FunctionTries
from peakline._plan.probe import Found
from peakline._plan.search import Search
from peakline._plan.selective import Rules, contexts
from peakline._plan.tried import Tried
from peakline.ilp_utils import aggregate_stats, parse_module_info
from peakline.mem_tracker import MemTracker, _ModState
from peakline.runtime_estimator import RuntimeEstimator
from peakline.sac_estimator import OPS_TO_ALWAYS_SKIP, SACEstimator
from peakline.sac_ilp import get_optimal_checkpointing_policy_per_module, sac_milp

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from llama import Llama, Shape  # type: ignore[import-not-found]

SHARES = (0.2, 0.5, 0.8)
COST = "kernel-level-cost-model"


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """GPT-2 with tokens, a ViT without."""

    def __init__(self, layers: int, width: int, heads: int, classes: int, tokens: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, width) if tokens else nn.Linear(width, width)
        self.layers = nn.ModuleList(Block(width, heads, tokens) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.tokens = tokens

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x if self.tokens else x[:, 0])


@dataclass
class Case:
    model: Callable[[int], nn.Module]  # of so many layers
    layers: int
    inputs: Callable[[], torch.Tensor]


def numbers(vocabulary: int, batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length), device="cuda")


CASES = {
    "gpt2": Case(
        lambda n: Transformer(n, 768, 12, 50257, True), 12, lambda: numbers(50257, 8, 1024)
    ),
    "llama-1b": Case(
        lambda n: Llama(Shape(2048, 8192, n, 32, 8), 2048, False),
        16,
        lambda: numbers(128256, 4, 2048),
    ),
    "vit-large": Case(
        lambda n: Transformer(n, 1024, 16, 1000, False),
        24,
        lambda: torch.rand(64, 197, 1024, device="cuda", dtype=torch.bfloat16),
    ),
}


def build(case: Case, layers: int) -> nn.Module:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return case.model(layers)
    finally:
        torch.set_default_dtype(before)


def train(
    case: Case,
    layers: int,
    change: Callable[[nn.Module], None] | None = None,
    compiled: bool = False,
) -> None:
    model = build(case, layers)
    if change is not None:
        change(model)
    run: Any = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        run(case.inputs()).float().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def estimate(run: Callable[[], None]) -> tuple[int, float]:
    """Bytes allocated and milliseconds of a step."""
    gc.collect()
    torch._dynamo.reset()
    gpu = peakline.virtual_gpu("h200", memory=2**48)
    with gpu as recording:
        run()
        times = gpu.times.typical() if gpu.times else None
    return json.loads(recording.to_json())["peak_allocated"], times.elapsed_ms if times else 0.0


def graph_of(case: Case, layers: int) -> tuple[Any, SACEstimator]:
    """What upstream's planner is told, gathered as upstream does."""
    with peakline.virtual_gpu("h200"), FakeTensorMode():
        model = build(case, layers)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        inputs = case.inputs()

        def step() -> None:
            model(inputs).float().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            step()
            tracker.reset_mod_stats()
            model(inputs).float().mean().backward()
            last = tracker.get_tracker_snapshot("current")
            optimizer.step()
            optimizer.zero_grad()
        for stats in tracker.memory_tracking.values():
            stats.snapshots.setdefault(_ModState.POST_BW, [copy.deepcopy(last)])
        times, sac = RuntimeEstimator(), SACEstimator()
        with times(COST):
            step()
        with sac(COST):
            loss = model(inputs).float().mean()
        loss.backward()
        info = aggregate_stats(model, tracker, times, sac, torch.device("cuda", 0))
    return parse_module_info(info), sac


def apply_upstream(
    model: nn.Module, plan: dict[str, float], sac: SACEstimator, root: str, same_contexts: bool
) -> None:
    """Each module of the plan, with the ops that upstream keeps for its share."""
    modules = dict(model.named_modules())
    for name, share in plan.items():
        module = modules[name.removeprefix(root).removeprefix(".")]
        saved = get_optimal_checkpointing_policy_per_module(sac.sac_mod_stats[name], 1 - share)
        pair = _OurContexts(saved) if same_contexts else functools.partial(_contexts, saved)
        forward = module.forward

        def wrapped(*args: Any, _f: Any = forward, _c: Any = pair, **kwargs: Any) -> Any:
            return checkpoint(_f, *args, use_reentrant=False, context_fn=_c, **kwargs)

        module.forward = wrapped


def _contexts(saved: list[int]) -> Any:
    places = {False: iter(saved), True: iter(saved)}

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if op in OPS_TO_ALWAYS_SKIP:
            return CheckpointPolicy.PREFER_RECOMPUTE
        keeps = next(places[context.is_recompute], 0)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class _OurContexts:
    """Learns in a module's first forward which calls these are, and uses our contexts from then
    on: the step that is timed comes later."""

    def __init__(self, saved: list[int]) -> None:
        self._saved = saved
        self._called: Counter[str] = Counter()
        self._keep: dict[str, tuple[int, ...]] = {}
        self._rules: Rules | None = None
        self._first = True

    def __call__(self) -> Any:
        if self._first:
            self._first = False
            places = iter(self._saved)
            return create_selective_checkpoint_contexts(functools.partial(self._learn, places))
        self._rules = self._rules or Rules(self._keep, {})
        return contexts(self._rules)

    def _learn(self, places: Iterator[int], _: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(op)
        number = self._called[name]
        self._called[name] += 1
        if op in OPS_TO_ALWAYS_SKIP or not next(places, 0):
            return CheckpointPolicy.PREFER_RECOMPUTE
        self._keep[name] = (*self._keep.get(name, ()), number)
        return CheckpointPolicy.MUST_SAVE


class Ours(FunctionTries):
    """Plans by what they allocate, as the others' peaks are; each is estimated once."""

    def __init__(self, case: Case, layers: int, compiled: bool) -> None:
        super().__init__(lambda: train(case, layers, None, compiled), "h200")
        self._eager = FunctionTries(lambda: train(case, layers), "h200")
        self._compiled = compiled
        self._known: dict[str, Tried | None] = {}
        self._found: Found | None = None

    def best(self, peak: int, levers: Sequence[str]) -> Tried | None:
        return Search(self, [], levers).run(peak).chosen

    def probe_and_ask(self, base: Plan) -> tuple[Found, Tried]:
        if self._found is None:
            self._found, _ = self._eager.probe_and_ask(base)
            self._found.facts.compiles = self._compiled
        plain = self._try(base)
        assert plain is not None
        return self._found, plain

    def _try(self, plan: Plan) -> Tried | None:
        text = plan.dumps()
        if text not in self._known:
            torch._dynamo.reset()
            self._known[text] = super()._try(plan)
        return self._known[text]

    def _run(self, plan: Plan, around: Any) -> dict[str, Any]:
        answer = super()._run(plan, around)
        return answer | {"peak_reserved": answer["peak_allocated"]}


def theirs_milp(case: Case, layers: int, same_contexts: bool) -> Iterator[tuple[str, int, float]]:
    graph, sac = graph_of(case, layers)
    root = graph.nodes[0]["fqn"]
    whole = graph.nodes[0]["act_total"]
    base = graph.nodes[0]["param_per_module"] * 2
    for share in SHARES:
        budget = (base + share * whole) / 2**30
        plan, _, _ = sac_milp(copy.deepcopy(graph), memory_budget=budget)
        if not plan:
            yield f"sac_milp {share}", 0, 0.0
            continue
        change = functools.partial(
            apply_upstream, plan=plan, sac=sac, root=root, same_contexts=same_contexts
        )
        yield (f"sac_milp {share}", *estimate(lambda change=change: train(case, layers, change)))  # type: ignore[misc]


def theirs_budget(case: Case, layers: int) -> Iterator[tuple[str, int, float]]:
    import torch._functorch.config as config

    for share in SHARES:
        with config.patch(activation_memory_budget=share):
            found = estimate(lambda: train(case, layers, None, True))
        yield (f"budget {share}", *found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--layers", type=int, help="cut models to so many layers")
    parser.add_argument("--compiled", action="store_true", help="beside activation_memory_budget")
    parser.add_argument("--alone", action="store_true", help="recomputation of ours alone")
    parser.add_argument("--rungs", type=int, default=5, help="of the ladder, with --compiled")
    parser.add_argument("--same-contexts", action="store_true", help="apply both by our contexts")
    args = parser.parse_args()
    print(f"{'model':>10} {'other':>14} {'peak':>10} {'overhead':>9}   {'our peak':>10} overhead")
    if args.compiled:  # each plan is compiled anew
        search._RUNGS = args.rungs
    for name in args.models.split(","):
        compare(name, args)
    return 0


def compare(name: str, args: argparse.Namespace) -> None:
    case = CASES[name]
    layers = min(args.layers or case.layers, case.layers)
    levers = ["activations"]
    levers += ["compile.activation_memory_budget"] if args.compiled and not args.alone else []
    tries = Ours(case, layers, args.compiled)
    _, plain = estimate(lambda: train(case, layers, None, args.compiled))
    if args.compiled:
        others = theirs_budget(case, layers)
    else:
        others = theirs_milp(case, layers, args.same_contexts)
    for other, peak, ms in others:
        if not ms:
            print(f"{name:>10} {other:>14}   no plan", flush=True)
            continue
        best = tries.best(peak, levers)
        told = "no plan as small"
        if best is not None:
            told = f"{best.allocated / 2**30:8.2f}Gi {best.step_ms / plain - 1:7.1%}"
            told += f"  {'; '.join(best.plan.changes())[:90]}"
        print(
            f"{name:>10} {other:>14} {peak / 2**30:8.2f}Gi {ms / plain - 1:8.1%}   {told}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
