"""In which order a module's ops are best recomputed, and the curve of what that costs."""

from __future__ import annotations

import sys
from collections import OrderedDict

from peakline import _C
from peakline._dropin.sac_stats import MSPS, SACGreedyOrderMeta, SACStats, SACTradeOffStats

# The share of memory that is discarded is rounded up by this much, as upstream does.
_MARGIN = 1e-2


def greedy_order(stats: SACStats) -> SACGreedyOrderMeta:
    """Views are always recomputed. Ops on one storage go together; so do all random ops, since they
    share the generator's state. The rest is sorted by bytes for each millisecond."""
    head_of = dict(stats.inplace_ops)
    groups: dict[int, set[int]] = {}
    for op, head in stats.inplace_ops:
        groups.setdefault(head, {head}).add(op)
    random_head = min(stats.rand_ops, default=-1)
    random_group = {random_head: set(stats.rand_ops)} if stats.rand_ops else {}
    order = SACGreedyOrderMeta(set(stats.view_like_ops), set(), groups, random_group, [])
    if stats.rand_ops and stats.force_store_random:
        order.stored_ops.add(random_head)
    for head, members in groups.items():
        changes_an_argument = head in head_of  # what was there before cannot be made again
        is_stored_random = stats.force_store_random and bool(members & set(stats.rand_ops))
        if changes_an_argument or is_stored_random:
            order.stored_ops.add(head)
    single = set(range(len(stats.memory))) - set(head_of) - set(stats.rand_ops)
    heads = sorted(single | set(groups) | set(random_group))
    placed = order.all_of(order.recomputed_ops) | order.all_of(order.stored_ops)
    for op in heads:
        if op not in placed:
            order.msps_meta.append(_use(stats, order, op))
            placed |= order.together(op)
    order.msps_meta.sort(key=lambda use: use.msps, reverse=True)
    return order


def _use(stats: SACStats, order: SACGreedyOrderMeta, op: int) -> MSPS:
    ops = order.together(op)
    memory = sum(stats.memory[i] for i in ops)
    runtime = sum(stats.runtimes[i] for i in ops)
    msps = memory / runtime if runtime > 0 else sys.float_info.max
    return MSPS({stats.func_names[i] for i in ops}, op, memory, runtime, msps)


def tradeoff_points(stats: SACStats, order: SACGreedyOrderMeta) -> OrderedDict[float, float]:
    """Discarded share to recomputed share, as more and more ops are recomputed."""
    memory, runtime = max(1, sum(stats.memory)), sum(stats.runtimes) or 1.0
    curve: OrderedDict[float, float] = OrderedDict()
    discarded, recomputed = 0, 0.0

    def add(bytes_: float, ms: float) -> None:
        nonlocal discarded, recomputed
        discarded, recomputed = discarded + int(bytes_), recomputed + ms
        curve[discarded / memory + _MARGIN] = recomputed / runtime

    always = order.all_of(order.recomputed_ops)
    add(sum(stats.memory[i] for i in always), sum(stats.runtimes[i] for i in always))
    for use in order.msps_meta:
        add(use.memory, use.runtime)
    stored = order.all_of(order.stored_ops) - always
    add(sum(stats.memory[i] for i in stored), sum(stats.runtimes[i] for i in stored))
    return curve


def tradeoff(stats: SACStats, order: SACGreedyOrderMeta, n_segments: int) -> SACTradeOffStats:
    """Lines along the curve. A part of a step costs the whole step, so each point takes the next
    one's time."""
    curve = tradeoff_points(stats, order)
    x, y = list(curve)[:-1], list(curve.values())[1:]
    n_segments = max(min(len(x) - 2, n_segments), 1)
    if len(x) < 2:
        cost = y[0] if y else 0.0
        slopes, intercepts, breaks = [0.0], [cost], [x[0] if x else 0.0, 1.0]
    else:
        slopes, intercepts, breaks = _C.cost.fit_pieces(x, y, n_segments)
    return SACTradeOffStats(
        n_segments=n_segments,
        slopes=slopes,
        intercepts=intercepts,
        fit_breaks=breaks,
        tradeoff_curve=curve,
        sac_memory=sum(stats.memory),
        sac_runtime=sum(stats.runtimes),
    )
