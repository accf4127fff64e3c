"""transformer_engine: Linear, LayerNorm, RMSNorm and LayerNormLinear, in half precision and FP8."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from peakline._virtual_cuda._stand_ins import _te_functions as functions
from peakline._virtual_cuda._stand_ins._package import Package, Region, marked_module

VERSION = "2.20.0"


def package(region: Region) -> Package:
    workspace = functions.Workspace()

    def of_this_session(module: type) -> type:
        marked = marked_module(module, region)
        vars_of = {"workspace": workspace}
        return type(module.__name__, (marked,), vars_of)

    modules = {
        module.__name__: of_this_session(module)
        for module in (Linear, LayerNorm, RMSNorm, LayerNormLinear)
    }
    contexts = {"fp8_autocast": fp8_autocast, "autocast": autocast}
    recipes = {recipe.__name__: recipe for recipe in (Format, *_RECIPES)}
    return Package(
        "transformer_engine",
        VERSION,
        {
            "transformer_engine": {"__version__": VERSION},
            "transformer_engine.pytorch": {**modules, **contexts},
            "transformer_engine.common": {},
            "transformer_engine.common.recipe": recipes,
        },
        for_programs_only=True,
    )


class Format(enum.Enum):
    E4M3 = "E4M3"
    E5M2 = "E5M2"
    HYBRID = "HYBRID"


@dataclass
class DelayedScaling:
    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: Any = "max"
    scaling_factor_compute_algo: Any = None
    reduce_amax: bool = True
    fp8_dpa: bool = False
    fp8_mha: bool = False


@dataclass
class Float8CurrentScaling:
    fp8_format: Format = Format.HYBRID
    fp8_dpa: bool = False
    fp8_mha: bool = False


_RECIPES = (DelayedScaling, Float8CurrentScaling)


@contextlib.contextmanager
def fp8_autocast(
    enabled: bool = True,
    calibrating: bool = False,
    fp8_recipe: Any = None,
    fp8_group: Any = None,
    _graph: bool = False,
) -> Iterator[None]:
    if enabled and torch.cuda.get_device_capability() < (8, 9):
        raise AssertionError("Device compute capability 8.9 or higher required for FP8 execution.")
    with functions.fp8_set(enabled):
        yield


def autocast(enabled: bool = True, recipe: Any = None, **kwargs: Any) -> Any:
    return fp8_autocast(enabled, fp8_recipe=recipe)


class _Module(nn.Module):
    workspace: functions.Workspace

    def _dtype(self, x: torch.Tensor) -> torch.dtype:
        if not x.is_cuda:
            raise AssertionError("TransformerEngine needs CUDA.")
        return functions.working_dtype(x, self.parameters())


def _one_rank_only(tp_size: int, tp_group: Any, parallel_mode: Any, split: Any) -> None:
    if tp_size > 1 or tp_group is not None or parallel_mode is not None or split is not None:
        raise NotImplementedError(
            "peakline's stand-in of transformer_engine has no tp_group, tp_size, parallel_mode or "
            "parameters_split"
        )


def _parameter(device: Any, dtype: Any, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))


class Linear(_Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        rng_tracker_name: str | None = None,
        init_method: Any = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        parameters_split: Any = None,
        device: Any = "cuda",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        _one_rank_only(tp_size, tp_group, parallel_mode, parameters_split)
        self.in_features, self.out_features = in_features, out_features
        self.return_bias = return_bias
        self.weight = _parameter(device, params_dtype, out_features, in_features)
        self.bias = _parameter(device, params_dtype, out_features) if bias else None
        with torch.no_grad():
            (init_method or (lambda weight: nn.init.normal_(weight, std=0.023)))(self.weight)
            if self.bias is not None:
                nn.init.zeros_(self.bias)

    def forward(self, inp: torch.Tensor, is_first_microbatch: bool | None = None) -> Any:
        bias = None if self.return_bias else self.bias
        out = functions.linear(inp, self.weight, bias, self._dtype(inp), self.workspace)
        return (out, self.bias) if self.return_bias else out


class LayerNorm(_Module):
    has_bias = True

    def __init__(
        self,
        normalized_shape: Any = None,
        eps: float = 1e-5,
        sequence_parallel: bool | None = None,
        params_dtype: torch.dtype | None = None,
        zero_centered_gamma: bool = False,
        hidden_size: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        given: Any = hidden_size if normalized_shape is None else normalized_shape
        shape = (given,) if isinstance(given, int) else tuple(given)
        kind, device = dtype or params_dtype, device or "cuda"
        fill = nn.init.zeros_ if zero_centered_gamma else nn.init.ones_
        self.weight = _parameter(device, kind, *shape)
        self.bias = _parameter(device, kind, *shape) if self.has_bias else None
        with torch.no_grad():
            fill(self.weight)
            if self.bias is not None:
                nn.init.zeros_(self.bias)

    def forward(self, inp: torch.Tensor) -> torch.Tensor:
        autocast = torch.is_autocast_enabled()
        kind = torch.get_autocast_dtype("cuda") if autocast else self.weight.dtype
        return functions.norm(inp, self.weight, self.bias, kind)


class RMSNorm(LayerNorm):
    has_bias = False


class LayerNormLinear(_Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        init_method: Any = None,
        bias: bool = True,
        normalization: str = "LayerNorm",
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        return_layernorm_output: bool = False,
        return_layernorm_output_gathered: bool = False,
        parameters_split: Any = None,
        zero_centered_gamma: bool = False,
        device: Any = "cuda",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        _one_rank_only(tp_size, tp_group, parallel_mode, parameters_split)
        if normalization not in ("LayerNorm", "RMSNorm"):
            raise AssertionError(f"Unsupported normalization type {normalization!r}!")
        self.in_features, self.out_features = in_features, out_features
        self.return_bias, self.with_norm = return_bias, return_layernorm_output
        self.layer_norm_weight = _parameter(device, params_dtype, in_features)
        with_bias = normalization == "LayerNorm"
        self.layer_norm_bias = _parameter(device, params_dtype, in_features) if with_bias else None
        self.weight = _parameter(device, params_dtype, out_features, in_features)
        self.bias = _parameter(device, params_dtype, out_features) if bias else None
        with torch.no_grad():
            (init_method or (lambda weight: nn.init.normal_(weight, std=0.023)))(self.weight)
            nn.init.ones_(self.layer_norm_weight)
            for item in (self.layer_norm_bias, self.bias):
                if item is not None:
                    nn.init.zeros_(item)

    def forward(self, inp: torch.Tensor, is_first_microbatch: bool | None = None) -> Any:
        found = functions.normed_linear(
            inp,
            self.weight,
            None if self.return_bias else self.bias,
            self.layer_norm_weight,
            self.layer_norm_bias,
            self._dtype(inp),
            self.workspace,
            self.with_norm,
        )
        if not self.return_bias:
            return found
        return (found[0], self.bias, found[1]) if self.with_norm else (found, self.bias)
