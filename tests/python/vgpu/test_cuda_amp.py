"""Mixed precision on a virtual GPU."""

from __future__ import annotations

import warnings

import pytest
import torch

import peakline


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_casts_matrix_products_and_keeps_reductions(dtype: torch.dtype) -> None:
    with peakline.virtual_gpu("h200"):
        model = torch.nn.Linear(16, 16).cuda()
        with torch.autocast("cuda", dtype=dtype):
            y = model(torch.zeros(4, 16, device="cuda"))
            assert y.dtype == dtype
            assert torch.softmax(y, -1).dtype == torch.float32
        y.float().sum().backward()
        assert model.weight.grad is not None
        assert model.weight.grad.dtype == torch.float32


def test_the_grad_scaler_lets_the_optimizer_step() -> None:
    with peakline.virtual_gpu("h200"), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = torch.nn.Linear(16, 16).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        assert scaler.is_enabled()
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.zeros(4, 16, device="cuda")).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert len(optimizer.state) == 2
        assert optimizer.state[model.weight]["exp_avg"].is_cuda
        assert scaler.get_scale() > 0


@pytest.mark.parametrize("kind", ["foreach", "fused", "for_loop", "capturable"])
def test_optimizers_keep_their_state_on_the_device(kind: str) -> None:
    options = {
        "foreach": {"foreach": True},
        "fused": {"fused": True},
        "for_loop": {"foreach": False},
        "capturable": {"capturable": True},
    }[kind]
    with peakline.virtual_gpu("h200"):
        model = torch.nn.Linear(256, 256).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        model(torch.zeros(4, 256, device="cuda")).sum().backward()
        optimizer.step()
        state = optimizer.state[model.weight]
        assert state["exp_avg"].is_cuda
        on_device = kind in ("fused", "capturable")
        assert state["step"].is_cuda == on_device
