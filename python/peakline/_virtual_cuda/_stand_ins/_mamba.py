"""mamba_ssm 2: its functions, and the blocks Mamba and Mamba2."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from peakline._virtual_cuda._stand_ins._chunked_scan import mamba_chunk_scan_combined
from peakline._virtual_cuda._stand_ins._gated_norm import RMSNorm
from peakline._virtual_cuda._stand_ins._mamba2_block import mamba_split_conv1d_scan_combined
from peakline._virtual_cuda._stand_ins._package import Package, Region, marked_module
from peakline._virtual_cuda._stand_ins._selective_scan import mamba_inner_fn, selective_scan_fn

VERSION = "2.3.2"


def package(region: Region) -> Package:
    scans = {
        "selective_scan_fn": region.around(selective_scan_fn),
        "mamba_inner_fn": region.around(mamba_inner_fn),
    }
    blocks = {name: marked_module(block, region) for name, block in _BLOCKS.items()}
    return Package(
        "mamba_ssm",
        VERSION,
        {
            "mamba_ssm": {"__version__": VERSION, **scans, **blocks},
            "mamba_ssm.modules": {},
            "mamba_ssm.modules.mamba_simple": {"Mamba": blocks["Mamba"]},
            "mamba_ssm.modules.mamba2": {"Mamba2": blocks["Mamba2"]},
            "mamba_ssm.ops": {},
            "mamba_ssm.ops.selective_scan_interface": scans,
            "mamba_ssm.ops.triton": {},
            "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": marked_module(RMSNorm, region)},
            "mamba_ssm.ops.triton.ssd_combined": {
                "mamba_chunk_scan_combined": region.around(mamba_chunk_scan_combined),
                "mamba_split_conv1d_scan_combined": region.around(mamba_split_conv1d_scan_combined),
            },
        },
        for_programs_only=True,
    )


def _training_only(inference_params: Any) -> None:
    if inference_params is not None:
        raise NotImplementedError("peakline's stand-in of mamba_ssm has no inference_params")


def _step_bias(count: int, least: float, most: float, kind: dict[str, Any]) -> torch.Tensor:
    """Drawn between two bounds on a scale of logarithms, and through the inverse of softplus."""
    steps = torch.exp(torch.rand(count, **kind) * math.log(most / least) + math.log(least))
    return steps + torch.log(-torch.expm1(-steps))


class Mamba(nn.Module):
    def __init__(
        self,
        d_model: int,
        d_state: int = 16,
        d_conv: int = 4,
        expand: int = 2,
        dt_rank: int | str = "auto",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init: str = "random",
        dt_scale: float = 1.0,
        dt_init_floor: float = 1e-4,
        conv_bias: bool = True,
        bias: bool = False,
        use_fast_path: bool = True,
        layer_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        width = int(expand * d_model)
        rank = math.ceil(d_model / 16) if dt_rank == "auto" else int(dt_rank)
        self.d_model, self.d_state, self.d_inner, self.dt_rank = d_model, d_state, width, rank
        self.layer_idx = layer_idx
        self.in_proj = nn.Linear(d_model, 2 * width, bias=bias, **kind)
        self.conv1d = nn.Conv1d(
            width, width, d_conv, groups=width, padding=d_conv - 1, bias=conv_bias, **kind
        )
        self.x_proj = nn.Linear(width, rank + 2 * d_state, bias=False, **kind)
        self.dt_proj = nn.Linear(rank, width, bias=True, **kind)
        with torch.no_grad():
            self.dt_proj.bias.copy_(_step_bias(width, dt_min, dt_max, kind))
        decay = torch.arange(1, d_state + 1, dtype=torch.float32, device=device)
        self.A_log = nn.Parameter(torch.log(decay.repeat(width, 1)))
        self.D = nn.Parameter(torch.ones(width, device=device))
        self.out_proj = nn.Linear(width, d_model, bias=bias, **kind)

    def forward(self, hidden_states: torch.Tensor, inference_params: Any = None) -> torch.Tensor:
        _training_only(inference_params)
        batch = len(hidden_states)
        product = self.in_proj.weight @ hidden_states.flatten(0, 1).t()
        xz = product.view(2 * self.d_inner, batch, -1).transpose(0, 1)
        if self.in_proj.bias is not None:
            xz = xz + self.in_proj.bias.to(xz.dtype).unsqueeze(-1)
        return mamba_inner_fn(
            xz,
            self.conv1d.weight,
            self.conv1d.bias,
            self.x_proj.weight,
            self.dt_proj.weight,
            self.out_proj.weight,
            self.out_proj.bias,
            -torch.exp(self.A_log.float()),
            D=self.D.float(),
            delta_bias=self.dt_proj.bias.float(),
        )


class Mamba2(nn.Module):
    def __init__(
        self,
        d_model: int,
        d_state: int = 128,
        d_conv: int = 4,
        conv_init: float | None = None,
        expand: int = 2,
        headdim: int = 64,
        d_ssm: int | None = None,
        ngroups: int = 1,
        A_init_range: tuple[float, float] = (1, 16),
        D_has_hdim: bool = False,
        rmsnorm: bool = True,
        norm_before_gate: bool = False,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init_floor: float = 1e-4,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        bias: bool = False,
        conv_bias: bool = True,
        chunk_size: int = 256,
        use_mem_eff_path: bool = True,
        layer_idx: int | None = None,
        process_group: Any = None,
        sequence_parallel: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if d_ssm is not None or process_group is not None or not use_mem_eff_path:
            raise NotImplementedError(
                "peakline's stand-in of mamba_ssm has no Mamba2 with d_ssm, process_group or "
                "use_mem_eff_path=False"
            )
        kind = {"device": device, "dtype": dtype}
        width = expand * d_model
        self.d_model, self.d_state, self.d_inner, self.headdim = d_model, d_state, width, headdim
        self.ngroups, self.chunk_size, self.layer_idx = ngroups, chunk_size, layer_idx
        self.nheads = width // headdim
        shared = 2 * ngroups * d_state
        self.in_proj = nn.Linear(d_model, 2 * width + shared + self.nheads, bias=bias, **kind)
        channels = width + shared
        self.conv1d = nn.Conv1d(
            channels, channels, d_conv, groups=channels, padding=d_conv - 1, bias=conv_bias, **kind
        )
        self.dt_bias = nn.Parameter(_step_bias(self.nheads, dt_min, dt_max, kind))
        decay = torch.empty(self.nheads, dtype=torch.float32, device=device).uniform_(*A_init_range)
        self.A_log = nn.Parameter(torch.log(decay).to(dtype=dtype))
        self.D = nn.Parameter(torch.ones(width if D_has_hdim else self.nheads, device=device))
        self.norm = RMSNorm(width, group_size=width // ngroups, **kind) if rmsnorm else None
        self.out_proj = nn.Linear(width, d_model, bias=bias, **kind)

    def forward(
        self,
        u: torch.Tensor,
        seqlen: int | None = None,
        seq_idx: Any = None,
        cu_seqlens: Any = None,
        inference_params: Any = None,
    ) -> torch.Tensor:
        _training_only(inference_params)
        packed = self.in_proj(u)
        if seqlen is not None:
            packed = packed.view(-1, seqlen, packed.shape[-1])
        per_number = self.D.shape[0] != self.nheads
        out = mamba_split_conv1d_scan_combined(
            packed,
            self.conv1d.weight.squeeze(1),
            self.conv1d.bias,
            self.dt_bias,
            -torch.exp(self.A_log.float()),
            self.D.view(self.nheads, self.headdim) if per_number else self.D,
            self.chunk_size,
            rmsnorm_weight=None if self.norm is None else self.norm.weight,
            outproj_weight=self.out_proj.weight,
            outproj_bias=self.out_proj.bias,
            headdim=self.headdim,
            ngroups=self.ngroups,
        )
        return out if seqlen is None else out.flatten(0, 1)


_BLOCKS: dict[str, type] = {"Mamba": Mamba, "Mamba2": Mamba2}
