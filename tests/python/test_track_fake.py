"""Under FakeTensorMode the recording holds the memory that the tensors would have had."""

from __future__ import annotations

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import peakline
from track_models import Net, parameter_bytes, train_step


def test_fake_run_has_the_peak_of_the_real_one() -> None:
    peaks = []
    for mode in (FakeTensorMode(), None):
        torch.manual_seed(0)
        if mode is not None:
            mode.__enter__()
        try:
            model = nn.Sequential(nn.Linear(64, 256, bias=False), nn.Tanh(), nn.Linear(256, 8))
            x = torch.randn(32, 64)
            with peakline.track(model) as run:
                loss = model(x).square().sum()
                loss.backward()
                del loss
            peaks.append(run.peak())
        finally:
            if mode is not None:
                mode.__exit__(None, None, None)
    fake, real = peaks
    assert fake.by_category["Parameter"] == real.by_category["Parameter"]
    # The real kernels' own temporaries are not in the fake run.
    assert abs(fake.bytes - real.bytes) <= 0.05 * real.bytes
    assert fake.module == real.module


def test_fake_training_frees_and_names_what_it_should() -> None:
    with FakeTensorMode():
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        with peakline.track(model, optimizer) as run:
            for _ in range(3):
                train_step(model, optimizer)
                held = torch.empty(50_000_000, dtype=torch.uint8)
                del held
        size = parameter_bytes(model)
    peak = run.peak("cpu")
    assert peak.by_category["Parameter"] == size
    assert peak.by_category["Optstate"] >= 2 * size
    assert peak.by_category.get("Gradient", 0) == 0
    assert len(run.steps) == 3
    assert run.steps[1].peak_allocated == run.steps[2].peak_allocated
    assert run.peak().op.startswith("aten::")


def test_fake_memory_on_another_device_is_counted_there_and_rounded_as_it_rounds() -> None:
    with FakeTensorMode(), peakline.track() as run:
        x = torch.empty(1000, dtype=torch.uint8, device="cuda")
        y = torch.empty(100, dtype=torch.uint8, device="cuda")
        assert x.device.type == "cuda"
        del x, y
    assert run.peak("cuda:0").bytes == 1024 + 512
    assert run.devices == ["cuda:0"]


def test_views_of_fake_tensors_are_no_new_memory() -> None:
    with FakeTensorMode(), peakline.track() as run:
        x = torch.empty(1000, dtype=torch.uint8)
        kept = [x.view(10, 100), x[::2], x.t() if x.dim() == 2 else x.reshape(-1)]
        del x
        y = torch.empty(10, dtype=torch.uint8)
    assert run.peak().bytes == 1010
    del kept, y
