"""Versions and settings of CUDA's libraries, as a build for NVIDIA GPUs has them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import torch
import torch.backends.cudnn.rnn

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine

# What a CPU-only build answers in place of the versions it does not have. Programs ask to choose
# features by; no memory depends on them.
CUDA_VERSION = "13.0"
CUDNN_VERSION = 91900
NCCL_VERSION = (2, 28, 9)


def install(patches: Patches, engine: Engine) -> None:
    patches.set_all(torch._C, _functions(engine))
    if torch.version.cuda is None:
        _install_versions(patches)


def _install_versions(patches: Patches) -> None:
    major, minor = (int(part) for part in CUDA_VERSION.split("."))
    patches.set(torch.version, "cuda", CUDA_VERSION)
    patches.set(torch._C, "_cuda_getCompiledVersion", lambda: major * 1000 + minor * 10)
    for name in ("_has_cuda", "_has_cudnn"):
        patches.set(torch._C, name, True)
    # The module that users see wraps this one.
    cudnn: Any = torch.backends.cudnn
    patches.set(cudnn.m, "_init", lambda: True)
    patches.set(cudnn.m, "version", lambda: CUDNN_VERSION)
    modes = SimpleNamespace(rnn_relu=0, rnn_tanh=1, lstm=2, gru=3)
    rnn: Any = sys.modules["torch.backends.cudnn.rnn"]
    patches.set(getattr(rnn, "m", rnn), "_cudnn", SimpleNamespace(RNNMode=modes))
    nccl = NCCL_VERSION[0] << 32 | NCCL_VERSION[1] << 16 | NCCL_VERSION[2]
    patches.set(torch._C, "_nccl_version", lambda: nccl)
    patches.set(torch._C, "_nccl_version_suffix", lambda: b"")
    patches.set_where_present(torch._C, "_is_flash_attention_available", lambda: True)


def _functions(engine: Engine) -> dict[str, Any]:
    limit = _Number(10)
    tuning = _Number(0)
    return {
        "_cuda_get_cudnn_benchmark_limit": limit.get,
        "_cuda_set_cudnn_benchmark_limit": limit.set,
        "_cuda_getCublasWorkspaceSize": engine.cublas_workspace,
        "_cuda_setCublasWorkspaceSize": engine.set_cublas_workspace,
        "_cuda_resetCublasWorkspaceSize": lambda: engine.set_cublas_workspace(None),
        "_cuda_getCublasLtWorkspaceSize": engine.cublaslt_workspace,
        "_cuda_setCublasLtWorkspaceSize": engine.set_cublaslt_workspace,
        "_cuda_resetCublasLtWorkspaceSize": lambda: engine.set_cublaslt_workspace(None),
        "_cuda_clearCublasWorkspaces": engine.clear_cublas_workspaces,
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_tunableop_enable": tuning.set,
        "_cuda_tunableop_tuning_is_enabled": lambda: False,
        "_cuda_tunableop_tuning_enable": tuning.set,
    }


class _Number:
    """A setting that changes nothing here."""

    def __init__(self, value: int) -> None:
        self._value = value

    def get(self) -> int:
        return self._value

    def set(self, value: int) -> None:
        self._value = value
