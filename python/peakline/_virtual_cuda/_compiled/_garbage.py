"""What Dynamo leaves behind, where nothing makes Python collect it.

Of every frame that it looks at it leaves garbage in cycles, which holds the frame's tensors. To
compile makes so many objects that Python collects it on the way; a program whose code is found in
the cache has to be made to, or it would need more memory than in its first estimate.

To look through all objects of torch takes a fifth of a second, so what was there before a frame is
put aside until Dynamo is through with it (`gc.freeze`), or until its code turns out to be compiled,
where Python shall find all garbage, as ever.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch

from peakline._imports import Action
from peakline._patches import Patches

_YOUNG = 1  # the generation up to which a collection takes next to no time


class DynamosGarbage:
    def __init__(self) -> None:
        self._found = 0  # graphs whose code was found, in the life of this process
        self._any = False  # of this program
        self._left = False
        self._aside = False
        self._depth = 0

    def install(self, patches: Patches) -> None:
        self._found = _found_in_caches()
        run_backward: Any = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

        def collected_before(*args: Any, **kwargs: Any) -> Any:
            if self._left:
                self._collect()
            return run_backward(*args, **kwargs)

        patches.set(torch.autograd, "_engine_run_backward", collected_before)

    def actions(self, patches: Patches) -> dict[str, Action]:
        def watch(module: Any) -> None:
            original = module.GraphLowering.__init__

            def lower(graph: Any, *args: Any, **kwargs: Any) -> None:
                self._take_back()
                original(graph, *args, **kwargs)

            patches.set(module.GraphLowering, "__init__", lower)

        return {"torch._inductor.graph": watch}

    @contextlib.contextmanager
    def of_a_frame(self) -> Iterator[None]:
        if self._depth == 0:
            self._put_aside()
        self._depth += 1
        try:
            yield
            if self._depth == 1:
                self._after_a_frame()
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._take_back()

    def _after_a_frame(self) -> None:
        """Where code was compiled for a frame, it waits for backward: most frames hold nothing."""
        before, self._found = self._found, _found_in_caches()
        self._any = self._any or self._found > before
        self._left = self._any
        if self._found > before or (self._left and self._aside):
            self._collect()

    def _collect(self) -> None:
        self._left = False
        gc.collect()

    def _put_aside(self) -> None:
        if gc.get_freeze_count() > 0:
            return  # the program's own, which could not be told from these
        gc.collect(_YOUNG)  # what is put aside comes back as old, and is looked at seldom
        gc.freeze()
        self._aside = True

    def _take_back(self) -> None:
        if self._aside:
            self._aside = False
            gc.unfreeze()


def _found_in_caches() -> int:
    counters = torch._dynamo.utils.counters
    hits = counters["aot_autograd"]["autograd_cache_hit"]
    return int(hits + counters["inductor"]["fxgraph_cache_hit"])
