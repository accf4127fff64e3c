"""apex: fused optimizers and norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from peakline._virtual_cuda._stand_ins._package import Package, Region, applied, marked_module

VERSION = "0.1"
_PARTS = 16  # in which the norms' kernels sum up the gradients of their weights


def package(region: Region) -> Package:
    return Package(
        "apex",
        VERSION,
        {
            "apex": {"__version__": VERSION},
            "apex.optimizers": {
                "FusedAdam": _marked(FusedAdam, region),
                "FusedLAMB": _marked(FusedLAMB, region),
                "FusedSGD": _marked(FusedSGD, region),
            },
            "apex.normalization": {
                "FusedLayerNorm": marked_module(FusedLayerNorm, region),
                "MixedFusedLayerNorm": marked_module(MixedFusedLayerNorm, region),
                "FusedRMSNorm": marked_module(FusedRMSNorm, region),
                "MixedFusedRMSNorm": marked_module(MixedFusedRMSNorm, region),
            },
        },
        for_programs_only=True,
    )


def _marked(optimizer: type, region: Region) -> type:
    return type(optimizer.__name__, (optimizer,), {"step": region.around(optimizer.step)})  # type: ignore[attr-defined]


class _Fused(torch.optim.Optimizer):
    """One kernel for all tensors: it needs its state, and a flag that says whether anything
    overflowed."""

    state_names: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def __init__(self, params: Any, set_grad_none: bool = True, **defaults: Any) -> None:
        super().__init__(params, defaults)
        self.set_grad_none = set_grad_none
        self._overflow = torch.zeros(1, dtype=torch.int, device="cuda")

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none=self.set_grad_none and set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._make_state(parameter, group)
        return loss

    def _make_state(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        for name in self.state_names:
            if name not in state:
                state[name] = torch.zeros_like(parameter).float()


class FusedAdam(_Fused):
    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        if master_weights and not capturable:
            raise RuntimeError(
                "Master weights is currently only supported with the capturable version."
            )
        super().__init__(
            params, set_grad_none, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay
        )
        self._masters = [
            parameter.detach().clone().float()
            for group in self.param_groups
            for parameter in group["params"]
            if master_weights
        ]


class FusedLAMB(_Fused):
    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        super().__init__(
            params, set_grad_none, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay
        )

    def _make_state(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        if parameter.dtype not in (torch.float16, torch.float32):
            raise RuntimeError("FusedLAMB only support fp16 and fp32.")
        state = self.state[parameter]
        for name in self.state_names:
            if name not in state:
                state[name] = torch.zeros_like(parameter)


class FusedSGD(_Fused):
    state_names = ("momentum_buffer",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay)

    def _make_state(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if group["momentum"] and "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)


class _Norm(torch.autograd.Function):
    """Keeps its input and one or two numbers a row (memory_efficient: its output and one)."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        width: int,
        numbers: int,
        memory_efficient: bool,
        kind: torch.dtype,
    ) -> torch.Tensor:
        input = input.contiguous()
        output = torch.empty_like(input, dtype=kind)
        rows = input.numel() // width
        found = [
            torch.empty(rows, dtype=torch.float32, device=input.device) for _ in range(numbers)
        ]
        kept = found[-1:] if memory_efficient else found  # without the mean
        ctx.save_for_backward(output if memory_efficient else input, weight, bias, *kept)
        ctx.width = width
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        kept, weight, bias, *_ = ctx.saved_tensors
        grad = grads[0].contiguous()
        results: list[torch.Tensor | None] = [torch.empty_like(kept)]
        results += [None if item is None else torch.empty_like(item) for item in (weight, bias)]
        parts = [
            torch.empty(_PARTS, ctx.width, dtype=torch.float32, device=kept.device)
            for item in (weight, bias)
            if item is not None
        ]
        del parts, grad
        return (*results, None, None, None, None)


class FusedLayerNorm(nn.Module):
    numbers_per_row = 2
    has_bias = True
    as_weight = False  # whether results have the weight's type

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = torch.Size(shape)
        self.memory_efficient = memory_efficient
        self.weight = (
            nn.Parameter(torch.ones(self.normalized_shape)) if elementwise_affine else None
        )
        with_bias = elementwise_affine and self.has_bias
        self.bias = nn.Parameter(torch.zeros(self.normalized_shape)) if with_bias else None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        width = self.normalized_shape.numel()
        given = (input, self.weight, self.bias, width, self.numbers_per_row, self.memory_efficient)
        weight = self.weight if self.as_weight else None
        kind = input.dtype if weight is None else weight.dtype
        out: torch.Tensor = applied(_Norm, *given, kind)
        return out


class FusedRMSNorm(FusedLayerNorm):
    numbers_per_row = 1
    has_bias = False


class MixedFusedLayerNorm(FusedLayerNorm):
    as_weight = True


class MixedFusedRMSNorm(FusedRMSNorm):
    as_weight = True
