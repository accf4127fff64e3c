"""Sentences about what is known of kernels and libraries on the virtual GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping

from peakline._virtual_cuda._engine import Engine

_MOST_NAMES = 5


def sentences(engine: Engine, failed_ops: Mapping[str, str]) -> list[str]:
    """Of the run so far. `failed_ops` are ops whose own code failed, and why."""
    alone = engine.outputs_only() - failed_ops.keys()
    found = [_cudnn(engine), _unmeasured(engine), _outputs_only(alone), _failed(failed_ops)]
    return [sentence for sentence in found if sentence]


def _cudnn(engine: Engine) -> str:
    """Convolutions are planned by cuDNN, if it is there and works."""
    cudnn = engine.cudnn()
    stand_in = "so rules stand in for its plans of convolutions"
    if not cudnn["needed"] or (cudnn["installed"] and not cudnn["problem"]):
        return ""
    if cudnn["problem"]:
        version = f" {cudnn['version']}" if cudnn["version"] else ""
        return (
            f"cuDNN{version} cannot be asked by peakline-planner ({cudnn['problem']}), {stand_in}"
        )
    if os.environ.get("PEAKLINE_CUDNN") == "off":
        return f"cuDNN is switched off by PEAKLINE_CUDNN=off, {stand_in}"
    return (
        f"no cuDNN was found, {stand_in}; "
        "`pip install --no-deps nvidia-cudnn-cu13` brings one, and no GPU is needed for it"
    )


def _unmeasured(engine: Engine) -> str:
    """A rule counts as exact only where what it says was measured."""
    gpu = engine.properties(0)["name"]
    measured = engine.measured_versions()
    cudnn = engine.cudnn()["version"]
    what = "what kernels and libraries allocate"
    if not measured["torch"]:
        return f"{what} was never measured on {gpu}, so it counts as modelled at best"
    others = []
    if not measured["has_torch"]:
        others.append(f"torch {' and '.join(measured['torch'])}")
    if cudnn and not any(cudnn.startswith(f"{known}.") for known in measured["cudnn"]):
        others.append(f"cuDNN {' and '.join(measured['cudnn'])}")
    if not others:
        return ""
    known = " and ".join(others)
    return f"{what} was measured with {known}, not with this one, so it counts as modelled at best"


def _outputs_only(names: set[str]) -> str:
    if not names:
        return ""
    return (
        f"of {_listed(sorted(names))} only the results are counted: what they need beside them is "
        "not known"
    )


def _failed(ops: Mapping[str, str]) -> str:
    """The first reason stands for all."""
    if not ops:
        return ""
    return (
        f"of {_listed(list(ops))} only the results are counted, as their fakes say, because their "
        f"own code fails on a virtual GPU ({next(iter(ops.values()))})"
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
