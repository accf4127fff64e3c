"""torch.compile, Triton and NVRTC on a virtual GPU.

Dynamo, AOTAutograd and Inductor run as they are and write their code for the virtual GPU. Triton
kernels are neither built nor launched. So what a compiled program allocates is what its generated
code allocates, and that is the real one.

Nothing is imported before the program imports it: each part acts on a module of torch's or
Triton's as soon as that is there.
"""

from __future__ import annotations

from peakline._imports import Action, acting_on
from peakline._patches import Patches
from peakline._virtual_cuda._compiled import (
    _cache,
    _dynamo,
    _eager,
    _generated,
    _inductor,
    _nvrtc,
    _source_keys,
    _triton,
)
from peakline._virtual_cuda._compiled._benchmarks import Benchmarks
from peakline._virtual_cuda._compiled._versions import why_not_compiled
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._options import Options


def install(patches: Patches, notes: Notes, engine: Engine, options: Options) -> None:
    reason = why_not_compiled(options.eager)
    benchmarks = Benchmarks(notes, engine)
    _nvrtc.install(patches)
    actions: dict[str, Action] = benchmarks.actions(patches)
    actions |= _triton.actions(patches, engine, benchmarks)
    if reason:
        _eager.install(patches, notes, engine, reason)
    else:
        actions |= _source_keys.actions(patches, _cache.install(patches, engine))
        actions |= _dynamo.actions(patches, notes, engine)
        actions |= _inductor.actions(patches, notes, engine, options, benchmarks)
        actions |= _generated.actions(patches, benchmarks)
    patches.keep(acting_on(actions))
