"""CUDA graphs and memory pools: private pools of the simulated allocator.

A capture runs the program's ops once, and what they allocate comes from the graph's pool. A replay
allocates nothing. The pool keeps its segments for as long as a graph may be replayed.
"""

from __future__ import annotations

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._graphs import _mem_pools, _trees
from peakline._virtual_cuda._graphs._captures import Captures
from peakline._virtual_cuda._graphs._graph import install as install_graph
from peakline._virtual_cuda._graphs._pools import Pools

__all__ = ["Captures", "install"]


def install(patches: Patches, engine: Engine) -> Captures:
    pools = Pools(engine)
    patches.on_restore(pools.close)
    captures = Captures(engine, pools)
    install_graph(patches, captures, pools)
    _mem_pools.install(patches, engine, pools)
    _trees.install(patches, engine, pools)
    return captures
