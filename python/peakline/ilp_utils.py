"""What the checkpointing planner is told: a drop-in for torch.distributed._tools.ilp_utils."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypedDict

import numpy as np
import torch

from peakline._dropin.mem_stats import _MemRefType, _ModMemStats, _ModState
from peakline.mem_tracker import MemTracker
from peakline.runtime_estimator import RuntimeEstimator
from peakline.sac_estimator import SACEstimator


class ModOrder(TypedDict):
    fw_pre_order: list[str]
    bw_pre_order: list[str]
    fw_post_order: list[str]
    bw_post_order: list[str]


class ModRuntime(TypedDict):
    fw: float
    bw: float


class ModStats(TypedDict):
    """One module, with all that is below it. Bytes and milliseconds."""

    fqn: str
    param_per_module: int
    grad_per_module: int
    grad_total: int  # gradients there as backward enters the module
    act_fw_per_module: int  # what forward leaves for backward, without input and output
    act_bw_per_module: int  # at the peak of its backward
    act_grad_per_module: int  # gradients of activations at that peak
    act_total: int  # activations there as forward leaves the module
    input_per_module: int
    output_per_module: int
    fw_runtime_per_module: float
    bw_runtime_per_module: float
    is_leaf: bool
    sac_runtime: float
    sac_memory: int
    n_segments: int
    slopes: list[float]
    intercepts: list[float]
    breakpoints: list[float]
    tradeoff_curve: OrderedDict[float, float]


class ModuleInfo(TypedDict):
    mod_order: ModOrder
    mod_stats: list[ModStats]


class Node(ModStats):
    index: int  # in the order of forward's entries
    pos_fw_post_order: int  # in the order in which forward leaves modules


class Graph:
    """Modules in the order of forward's entries; `ad_matrix[i][j]`: j is i or inside it."""

    def __init__(self, n: int) -> None:
        self.nodes: list[Node] = []
        self.name2node: dict[str, Node] = {}
        self.ad_matrix = np.zeros((n, n))
        self.fw_post_order: list[str] = []

    def add_node(self, node: Node) -> None:
        self.nodes.append(node)
        self.name2node[node["fqn"]] = node


def aggregate_stats(
    model: torch.nn.Module,
    mem_tracker: MemTracker,
    runtime_estimator: RuntimeEstimator,
    sac_estimator: SACEstimator,
    dev: torch.device,
) -> ModuleInfo:
    """Memory, time and trade-offs of every module that the tracker has seen, on device `dev`."""
    sac_estimator.pwlf_sac_tradeoff_curve()
    rows = []
    for module in model.modules():
        memory = mem_tracker.memory_tracking.get(module)
        if memory is not None:
            rows.append(_module_stats(memory, runtime_estimator, sac_estimator, dev))
    return {
        "mod_order": {
            "fw_pre_order": list(runtime_estimator.mod_fw_pre_order),
            "bw_pre_order": list(runtime_estimator.mod_bw_pre_order),
            "fw_post_order": list(runtime_estimator.mod_fw_post_order),
            "bw_post_order": list(runtime_estimator.mod_bw_post_order),
        },
        "mod_stats": rows,
    }


def _module_stats(
    memory: _ModMemStats, times: RuntimeEstimator, sac: SACEstimator, dev: torch.device
) -> ModStats:
    def at(state: _ModState, kind: _MemRefType) -> int:
        snapshots: Any = memory.snapshots[state]
        return int(snapshots[-1][dev][kind])

    name = memory.mod_fqn
    runtime = times.mod_runtimes[name]
    trade = sac.sac_mod_tradeoff_stats.get(name)
    left = at(_ModState.POST_FW, _MemRefType.ACT) - at(_ModState.PRE_FW, _MemRefType.ACT)
    temp = at(_ModState.PEAK_BW, _MemRefType.TEMP) - at(_ModState.PRE_BW, _MemRefType.TEMP)
    return {
        "fqn": name,
        "param_per_module": memory.parameter_mem,
        "grad_per_module": memory.parameter_mem,
        "grad_total": at(_ModState.PRE_BW, _MemRefType.GRAD),
        "act_fw_per_module": max(0, left - memory.output_mem),
        "act_bw_per_module": max(0, at(_ModState.PEAK_BW, _MemRefType.ACT)),
        "act_grad_per_module": temp,
        "act_total": at(_ModState.POST_FW, _MemRefType.ACT),
        "input_per_module": memory.input_mem,
        "output_per_module": memory.output_mem,
        "fw_runtime_per_module": runtime["fw"],
        "bw_runtime_per_module": runtime["bw"],
        "is_leaf": trade is None,
        "sac_runtime": trade.sac_runtime if trade else 0.0,
        "sac_memory": trade.sac_memory if trade else 0,
        "n_segments": trade.n_segments if trade else 0,
        "slopes": list(trade.slopes) if trade else [],
        "intercepts": list(trade.intercepts) if trade else [],
        "breakpoints": list(trade.fit_breaks) if trade else [],
        "tradeoff_curve": OrderedDict(trade.tradeoff_curve) if trade else OrderedDict(),
    }


def parse_module_info(module_info: ModuleInfo) -> Graph:
    """The tree of modules, for the planner."""
    order = {name: i for i, name in enumerate(module_info["mod_order"]["fw_pre_order"])}
    left = {name: i for i, name in enumerate(module_info["mod_order"]["fw_post_order"])}
    rows = module_info["mod_stats"]
    if len(rows) != len(order) or any(row["fqn"] not in order for row in rows):
        raise AssertionError(
            f"{len(rows)} modules have stats and {len(order)} ran: they must be the same modules"
        )
    module_info["mod_stats"] = sorted(rows, key=lambda row: order[row["fqn"]])
    graph = Graph(len(rows))
    graph.fw_post_order = module_info["mod_order"]["fw_post_order"]
    for index, row in enumerate(module_info["mod_stats"]):
        graph.add_node({**row, "index": index, "pos_fw_post_order": left[row["fqn"]]})
    for i, outer in enumerate(graph.nodes):
        for j in range(i, len(graph.nodes)):
            if not is_self_or_submodule(graph.nodes[j]["fqn"], outer["fqn"]):
                break
            graph.ad_matrix[i][j] = 1
    return graph


def is_self_or_submodule(name_descendant: str, name_ancestor: str) -> bool:
    return name_descendant == name_ancestor or is_submodule(name_descendant, name_ancestor)


def is_submodule(name_descendant: str, name_ancestor: str) -> bool:
    """Whether the first lies inside the second, and is not the same."""
    return name_descendant.startswith(name_ancestor + ".")


def display_bytes(b: int, unit: str = "MiB") -> str:
    powers = {"KiB": 10, "MiB": 20, "GiB": 30}
    if unit in powers:
        return f"{b / 2 ** powers[unit]:.2f} {unit}"
    return f"{b:.2f} bytes"


def get_peak_memory_runtime_baseline(graph: Graph) -> tuple[int, float]:
    """Peak bytes and milliseconds of a step without checkpointing or sharding: parameters,
    gradients and activations, without optimizer state."""
    root = graph.nodes[0]
    peak = max(
        node["grad_total"] + node["act_grad_per_module"] + node["act_total"] for node in graph.nodes
    )
    time = root["fw_runtime_per_module"] + root["bw_runtime_per_module"]
    return root["param_per_module"] + peak, time
