"""Time to plan checkpointing, beside upstream's solver: `python benchmarks/plan_solver.py`.

Models of 12, 32 and 126 layers; the same graph and budget for both. Upstream's sac_ilp needs pulp.
Its solver (CBC) gets `--limit` seconds for each, 120 unless told; a plan that it has by then
counts, optimal or not.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
import time
from collections import OrderedDict
from typing import Any

from peakline import sac_ilp
from peakline.ilp_utils import Graph

LAYERS = (12, 32, 126)
MIB = 2**20


def transformer(layers: int) -> Graph:
    """A root and layers with two blocks each, which hold the leaves: sizes of a 1B model's."""
    names: list[tuple[str, bool]] = [("M", False)]
    for i in range(layers):
        names.append((f"M.layers.{i}", False))
        for part in ("attention", "mlp"):
            names.append((f"M.layers.{i}.{part}", False))
            names += [(f"M.layers.{i}.{part}.{leaf}", True) for leaf in ("up", "down")]
    graph = Graph(len(names))
    graph.fw_post_order = _left(names)
    for index, (name, is_leaf) in enumerate(names):
        depth = name.count(".")
        saved = {0: layers * 240, 2: 240, 3: 110, 4: 40}[depth] * MIB
        slope = 1.0 + 0.01 * (index % 7)
        node: Any = {
            "fqn": name,
            "index": index,
            "pos_fw_post_order": graph.fw_post_order.index(name),
            "param_per_module": 2000 * MIB,
            "grad_total": 20 * MIB * (layers - min(layers, index // 7)),
            "act_fw_per_module": saved,
            "act_grad_per_module": 60 * MIB,
            "act_total": (layers if depth == 0 else 1 + (index - 1) // 7) * 240 * MIB,
            "is_leaf": is_leaf,
            "sac_runtime": {0: layers * 3.0, 2: 3.0, 3: 1.4, 4: 0.5}[depth],
            "sac_memory": int(saved * 1.3),
            "n_segments": 0 if is_leaf else 2,
            "slopes": [] if is_leaf else [0.3, slope],
            "intercepts": [] if is_leaf else [0.0, 0.3 - slope * 0.6],
            "tradeoff_curve": OrderedDict(),
        }
        graph.add_node(node)
    for i, (outer, _) in enumerate(names):
        for j in range(i, len(names)):
            inner = names[j][0]
            if inner != outer and not inner.startswith(outer + "."):
                break
            graph.ad_matrix[i][j] = 1
    return graph


def _left(names: list[tuple[str, bool]]) -> list[str]:
    """The order in which forward leaves modules that it entered in this one."""
    order: list[str] = []
    stack: list[str] = []
    for name, _ in names:
        while stack and not name.startswith(stack[-1] + "."):
            order.append(stack.pop())
        stack.append(name)
    return order + stack[::-1]


def timed(solve: Any, graph: Graph, budget: float) -> tuple[float, float | None]:
    """Seconds, and milliseconds of recomputation: None when there is no plan."""
    begin = time.perf_counter()
    plan, ms, _ = solve(graph, memory_budget=budget)
    return time.perf_counter() - begin, ms if plan else None


def limited_upstream(seconds: float) -> Any:
    """Upstream's module, whose solver stops after so long; None without pulp."""
    try:
        from torch.distributed._tools import sac_ilp as upstream
    except ImportError as error:
        print(f"upstream is left out: {error}", file=sys.stderr)
        return None
    solver: Any = upstream.PULP_CBC_CMD  # type: ignore[attr-defined]
    upstream.PULP_CBC_CMD = functools.partial(_solver, solver, seconds)  # type: ignore[attr-defined]
    return upstream


def _solver(solver: Any, seconds: float, **options: Any) -> Any:
    return solver(**{**options, "timeLimit": seconds})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of upstream's solver")
    args = parser.parse_args()
    upstream = limited_upstream(args.limit)
    timed(sac_ilp.sac_milp, transformer(2), 100)  # both solvers are loaded
    print(f"{'layers':>6} {'peakline':>10} {'recompute':>10}  {'upstream':>10} {'recompute':>10}")
    for layers in LAYERS:
        graph = transformer(layers)
        budget = (2000 + layers * (20 + 240 * 0.55) + 60) / 1024
        seconds, ms = timed(sac_ilp.sac_milp, copy.deepcopy(graph), budget)
        line = f"{layers:6} {seconds:9.3f}s {_told(ms)}"
        if upstream is not None:
            theirs, their_ms = timed(upstream.sac_milp, copy.deepcopy(graph), budget)
            line += f"  {theirs:9.3f}s {_told(their_ms)}  {theirs / seconds:6.1f}x"
        print(line, flush=True)
    return 0


def _told(ms: float | None) -> str:
    return "   no plan" if ms is None else f"{ms:8.2f}ms"


if __name__ == "__main__":
    sys.exit(main())
