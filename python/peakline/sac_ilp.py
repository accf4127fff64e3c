"""Which modules to checkpoint: a drop-in for torch.distributed._tools.sac_ilp.

HiGHS solves, and C++ computes memory and time of every answer again and refuses one that does not
hold. Upstream's problem, stated with fewer columns: only modules that may be checkpointed have
any, the time of recomputation needs no large constants, and memory is a running sum over modules
in the order in which forward leaves them.
"""

from __future__ import annotations

import logging
import math
from enum import IntEnum
from typing import Any

from peakline import _C
from peakline._dropin.milp import Program
from peakline.ilp_utils import Graph, Node, is_submodule
from peakline.sac_estimator import SACStats

logger = logging.getLogger(__name__)

_GIB = 2**30
_GAP = 1e-4  # of the recomputation time; upstream stops at 5%
_SECONDS = 180.0


def sac_milp(
    graph: Graph,
    memory_budget: float,
    world_size: int = 1,
    ac_units: list[str] | None = None,
    fsdp_units: list[str] | None = None,
) -> tuple[dict[str, float], float, int]:
    """The plan with the least recomputation whose peak is within `memory_budget` GiB.

    Gives (share of its memory to discard for each module in the plan, milliseconds of
    recomputation, peak in bytes); ({}, 0, -1) when no plan is within the budget. `ac_units` names
    the modules that may be in it; those that contain one of `fsdp_units` may not.
    """
    problem = _Problem(graph, memory_budget * _GIB, world_size, ac_units, fsdp_units)
    discard = problem.solve()
    if discard is None:
        logger.error("no plan keeps the peak within %s GiB", memory_budget)
        return {}, 0, -1
    recompute_ms, peak = problem.check(discard)
    plan = {
        node["fqn"]: round(share, 4)
        for node, share in zip(graph.nodes, discard, strict=True)
        if share > 0
    }
    return plan, round(recompute_ms, 2), round(peak)


class _Problem:
    def __init__(
        self,
        graph: Graph,
        budget: float,
        world_size: int,
        ac_units: list[str] | None,
        fsdp_units: list[str] | None,
    ) -> None:
        self._nodes = graph.nodes
        self._budget = budget
        self._world = world_size
        self._parameters = graph.nodes[0]["param_per_module"]
        units = set(ac_units) if ac_units else None
        self._may = [
            not node["is_leaf"]
            and node["n_segments"] > 0
            and (units is None or node["fqn"] in units)
            and not any(is_submodule(unit, node["fqn"]) for unit in fsdp_units or [])
            for node in graph.nodes
        ]
        # What backward needs is a part of all that forward makes.
        self._memory = [max(n["sac_memory"], n["act_fw_per_module"]) for n in graph.nodes]
        self._ends = [i + int(graph.ad_matrix[i].sum()) for i in range(len(graph.nodes))]

    def solve(self) -> list[float] | None:
        """The discarded share for each node, by the solver."""
        program = Program()
        chosen: dict[int, int] = {}
        shares: dict[int, int] = {}
        for i, node in enumerate(self._nodes):
            if self._may[i] and self._memory[i] > 0:
                chosen[i], shares[i] = self._add_node(program, node, self._memory[i])
        self._forbid_nesting(program, chosen)
        if not self._bound_memory(program, chosen, shares):
            return None
        values = program.solve(_GAP if len(chosen) > 20 else 0.0, _SECONDS) if chosen else []
        if values is None:
            return None
        discard = [0.0] * len(self._nodes)
        for i, column in chosen.items():
            if round(values[column]) == 1:
                discard[i] = min(1.0, max(values[shares[i]], self._least(i), 1e-12))
        return discard

    def _least(self, i: int) -> float:
        """Less than this discarded would need more memory than no checkpointing."""
        saved = self._nodes[i]["act_fw_per_module"]
        return (self._memory[i] - saved) / self._memory[i]

    def _add_node(self, program: Program, node: Node, memory: int) -> tuple[int, int]:
        i = node["index"]
        chosen = program.column(0, 1, whole=True)
        share = program.column(0, 1)
        time = program.column(cost=1.0)
        program.row({chosen: 1, share: -1}, low=0)
        program.row({share: 1, chosen: -self._least(i)}, low=0)
        # Without the module in the plan both are 0, and so is the time.
        for slope, intercept in zip(node["slopes"], node["intercepts"], strict=True):
            runtime = node["sac_runtime"]
            program.row({time: 1, share: -slope * runtime, chosen: -intercept * runtime}, low=0)
        return chosen, share

    def _forbid_nesting(self, program: Program, chosen: dict[int, int]) -> None:
        """On the way from the root to a module at most one is in the plan."""
        open_: list[int] = []
        for i in range(len(self._nodes)):
            while open_ and self._ends[open_[-1]] <= i:
                open_.pop()
            is_innermost = not any(j in chosen for j in range(i + 1, self._ends[i]))
            if i in chosen and open_ and is_innermost:
                program.row({chosen[j]: 1 for j in [*open_, i]}, high=1)
            if i in chosen:
                open_.append(i)

    def _bound_memory(
        self, program: Program, chosen: dict[int, int], shares: dict[int, int]
    ) -> bool:
        """What was freed before backward enters a module covers what is over the budget there."""
        wanted = [0.0] * len(self._nodes)  # by the order in which forward leaves modules
        for node in self._nodes:
            sharded = (self._parameters + node["grad_total"]) / self._world
            need = node["act_total"] + node["act_grad_per_module"] + sharded - self._budget
            wanted[node["pos_fw_post_order"]] = need
        by_position = sorted(self._nodes, key=lambda node: node["pos_fw_post_order"])
        freed: int | None = None
        highest = 0.0
        terms: dict[int, float] = {}
        for position, node in enumerate(by_position):
            if wanted[position] > highest:
                highest = wanted[position]
                if freed is None and not terms:
                    return False  # nothing comes before it
                before, freed = freed, program.column()
                link = {freed: -1.0, **terms}
                if before is not None:
                    link[before] = 1.0
                program.row(link, low=0)
                program.row({freed: 1.0}, low=highest / _GIB)
                terms = {}
            i = node["index"]
            if i in chosen:
                memory, saved = self._memory[i], node["act_fw_per_module"]
                terms[shares[i]] = memory / _GIB
                terms[chosen[i]] = -(memory - saved) / _GIB
        return True

    def check(self, discard: list[float]) -> tuple[float, float]:
        """Milliseconds and bytes of the plan, computed again; ValueError when it is none."""
        nodes: list[dict[str, Any]] = [
            {
                "subtree_end": self._ends[i],
                "post_position": node["pos_fw_post_order"],
                "may_checkpoint": self._may[i],
                "memory": self._memory[i],
                "saved": node["act_fw_per_module"],
                "act_total": node["act_total"],
                "act_grad": node["act_grad_per_module"],
                "grad_total": node["grad_total"],
                "runtime": node["sac_runtime"],
                "slopes": node["slopes"],
                "intercepts": node["intercepts"],
            }
            for i, node in enumerate(self._nodes)
        ]
        recompute_ms, peak = _C.cost.check_plan(
            nodes, self._parameters, self._budget, self._world, discard
        )
        return recompute_ms, peak


class SACDecision(IntEnum):
    RECOMPUTE = 0
    SAVE = 1


def get_optimal_checkpointing_policy_per_module(
    sac_stats: SACStats, memory_budget: float
) -> list[int]:
    """Which ops of a module to save (1) or recompute (0), so that recomputation takes least.

    `memory_budget` is the share of the ops' memory that may be saved, 0 to 1. [] when what must be
    saved is over it.
    """
    if not 0 <= memory_budget <= 1:
        raise ValueError(f"`memory_budget` must be a float between 0 and 1. Got {memory_budget}.")
    count = len(sac_stats.func_names)
    fixed, equal = _rules(sac_stats)
    budget = math.ceil(memory_budget * sum(sac_stats.memory))
    program = Program()
    columns = [
        program.column(max(0, fixed[i]), fixed[i] if fixed[i] >= 0 else 1, -time, whole=True)
        for i, time in enumerate(sac_stats.runtimes)
    ]
    for a, b in equal:
        program.row({columns[a]: 1, columns[b]: -1}, 0, 0)
    scale = max(1, budget)
    program.row(
        {columns[i]: sac_stats.memory[i] / scale for i in range(count)}, high=budget / scale
    )
    values = program.solve(0.0, 10.0) if count else []
    if values is None:
        logger.error("what must be saved needs more than %s of the memory", memory_budget)
        return []
    save = [round(value) for value in values]
    _C.cost.check_choices(
        [float(m) for m in sac_stats.memory], sac_stats.runtimes, fixed, equal, float(budget), save
    )
    return save


def _rules(stats: SACStats) -> tuple[list[int], list[tuple[int, int]]]:
    """For each op -1 (free), 0 or 1; and ops that go together."""
    fixed = [-1] * len(stats.func_names)
    equal: list[tuple[int, int]] = []
    if stats.force_store_random:
        for i in stats.rand_ops:
            fixed[i] = SACDecision.SAVE
    else:
        equal += zip(stats.rand_ops[:-1], stats.rand_ops[1:], strict=True)
    for i in stats.view_like_ops:
        fixed[i] = SACDecision.RECOMPUTE
    for op, parent in stats.inplace_ops:
        if op == parent:
            fixed[op] = SACDecision.SAVE
        else:
            equal.append((op, parent))
    return [int(value) for value in fixed], equal
