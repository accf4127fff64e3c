"""torch.cuda.CUDAGraph of a virtual GPU."""

from __future__ import annotations

from typing import Any

import torch

from peakline._patches import Patches
from peakline._virtual_cuda._graphs._captures import Capture, Captures
from peakline._virtual_cuda._graphs._pools import PoolName, Pools

_NOT_CAPTURED = "Called CUDAGraph::replay without a preceding successful capture."
_TWICE = (
    "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new "
    "instance."
)


def install(patches: Patches, captures: Captures, pools: Pools) -> None:
    def new_graph(cls: type, keep_graph: bool = False) -> VirtualGraph:
        return VirtualGraph(captures, pools)

    patches.set(torch.cuda.CUDAGraph, "__new__", staticmethod(new_graph))
    patches.set(torch.cuda.graphs, "_graph_pool_handle", pools.new)
    patches.set(torch._C, "_graph_pool_handle", pools.new)
    patches.set(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", captures.is_current)
    patches.set(torch._C, "_cuda_isCurrentStreamCapturing", captures.is_current)
    patches.set(torch._C, "_host_emptyCache", lambda: None)
    # A stream of this session; torch keeps the first one that it made.
    patches.set(torch.cuda.graph, "default_capture_stream", None)


class VirtualGraph:
    """What torch.cuda.CUDAGraph() gives: an instance of it as far as isinstance can tell."""

    def __init__(self, captures: Captures, pools: Pools) -> None:
        self._captures = captures
        self._pools = pools
        self._capture: Capture | None = None
        self._captured: Capture | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.cuda.CUDAGraph

    def capture_begin(
        self,
        pool: PoolName | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        if self._captured is not None:
            raise RuntimeError(_TWICE)
        self._capture = self._captures.begin(self, pool)

    def capture_end(self) -> None:
        if self._capture is None:
            raise RuntimeError("capture_end was called before capture_begin")
        self._captures.end(self._capture)
        self._captured, self._capture = self._capture, None

    def instantiate(self) -> None:
        pass

    def replay(self) -> None:
        if self._captured is None:
            raise RuntimeError(_NOT_CAPTURED)
        self._captures.replay(self._captured)

    def reset(self) -> None:
        captured, self._captured = self._captured, None
        if captured is not None:
            self._pools.release(captured.device, captured.pool)
        self._captures.forget(self, captured)

    def pool(self) -> PoolName:
        capture = self._captured or self._capture
        if capture is None:
            raise RuntimeError("pool() was called before a capture")
        return capture.pool

    def register_generator_state(self, generator: Any) -> None:
        pass

    def enable_debug_mode(self) -> None:
        pass

    def debug_dump(self, debug_path: str) -> None:
        pass

    def raw_cuda_graph(self) -> int:
        return id(self)

    def raw_cuda_graph_exec(self) -> int:
        return id(self)

    def __del__(self) -> None:
        self.reset()
