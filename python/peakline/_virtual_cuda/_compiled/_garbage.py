"""What Dynamo leaves behind, where nothing makes Python collect it.

Of every frame that it looks at it leaves garbage in cycles, which holds the frame's tensors. To
compile makes so many objects that Python collects it on the way; a program whose code is found in
the cache has to be made to, or it would need more memory than in its first estimate.
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from peakline._patches import Patches


class DynamosGarbage:
    def __init__(self) -> None:
        self._found = 0  # graphs whose code was found, in the life of this process
        self._any = False  # of this program
        self._left = False

    def install(self, patches: Patches) -> None:
        self._found = _found_in_caches()
        run_backward: Any = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

        def collected_before(*args: Any, **kwargs: Any) -> Any:
            self._collect()
            return run_backward(*args, **kwargs)

        patches.set(torch.autograd, "_engine_run_backward", collected_before)

    def after_a_frame(self) -> None:
        """At once where code was found, and else before backward: most frames hold nothing."""
        before, self._found = self._found, _found_in_caches()
        self._any = self._any or self._found > before
        self._left = self._any
        if self._found > before:
            self._collect()

    def _collect(self) -> None:
        if self._left:
            self._left = False
            gc.collect()


def _found_in_caches() -> int:
    counters = torch._dynamo.utils.counters
    hits = counters["aot_autograd"]["autograd_cache_hit"]
    return int(hits + counters["inductor"]["fxgraph_cache_hit"])
