"""peakline: exact memory tracking and estimation for PyTorch training."""

import sys
from typing import TYPE_CHECKING, Any


def _is_the_program() -> bool:
    """`python -m peakline` is about to become the C++ program, which needs no torch."""
    # Python sets argv[0] to "-m" while it looks for the module that it was asked to run.
    return sys.argv[:1] == ["-m"] and "peakline" in sys.orig_argv


# By module. One that this torch lacks something for costs its own names and no others.
_NAMES = {
    "checkpoint": "checkpoint",
    "explain_oom": "explain_oom",
    "export": "export",
    "fit": "fit",
    "MemTracker": "mem_tracker",
    "MemoryTracker": "memory_tracker",
    "ModTracker": "mod_tracker",
    "plan": "plan",
    "region": "region",
    "Run": "run",
    "load": "run",
    "simulate": "simulate",
    "track": "track",
    "virtual_gpu": "virtual_gpu",
}

if TYPE_CHECKING or not _is_the_program():
    from peakline import _torch_check as _torch_check
    from peakline._no_collection import no_collection as _no_collection

    with _no_collection():
        from peakline import _torch_places
        from peakline._C import version as __version__

        globals().update(_torch_places.import_faces(_NAMES))

if TYPE_CHECKING:
    from peakline.checkpoint import checkpoint
    from peakline.explain_oom import explain_oom
    from peakline.export import export
    from peakline.fit import fit
    from peakline.fsdp2_mem_tracker import FSDPMemTracker
    from peakline.mem_tracker import MemTracker
    from peakline.memory_tracker import MemoryTracker
    from peakline.mod_tracker import ModTracker
    from peakline.plan import plan
    from peakline.region import region
    from peakline.run import Run, load
    from peakline.runtime_estimator import RuntimeEstimator
    from peakline.sac_estimator import (
        MSPS,
        SACEstimator,
        SACGreedyOrderMeta,
        SACStats,
        SACTradeOffStats,
    )
    from peakline.simulate import simulate
    from peakline.track import track
    from peakline.virtual_gpu import virtual_gpu

__all__ = [
    "MSPS",
    "FSDPMemTracker",
    "MemTracker",
    "MemoryTracker",
    "ModTracker",
    "Run",
    "RuntimeEstimator",
    "SACEstimator",
    "SACGreedyOrderMeta",
    "SACStats",
    "SACTradeOffStats",
    "__version__",
    "checkpoint",
    "explain_oom",
    "export",
    "fit",
    "load",
    "plan",
    "region",
    "simulate",
    "track",
    "virtual_gpu",
]

# What is slow to import, or needs torch's distributed part, which is not in every build.
_LATER = {
    "FSDPMemTracker": "fsdp2_mem_tracker",
    "RuntimeEstimator": "runtime_estimator",
    **dict.fromkeys(
        ["MSPS", "SACEstimator", "SACGreedyOrderMeta", "SACStats", "SACTradeOffStats"],
        "sac_estimator",
    ),
}


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext peakline` in a notebook: the magic `%%peakline`."""
    from peakline.integrations import notebook

    notebook.load(shell)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"peakline.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
